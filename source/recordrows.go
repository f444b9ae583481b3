package source

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"lcache/sample"
	"lcache/source/internal/records"
)

// recordRows has the records of all shards. It is a sample.Listing.
type recordRows struct {
	shards []recordShard
	starts []int  // first sample of each shard, and the end of the last one
	part   string // comes first, if a sample has it
}

type recordShard struct {
	table   *records.Table
	shard   *sample.Shard
	outside bool
}

func newRecordRows(shards int, part string) *recordRows {
	return &recordRows{shards: make([]recordShard, shards), part: part}
}

// seal computes the positions of the shards, and checks that the chosen part exists.
func (r *recordRows) seal() error {
	r.starts = make([]int, len(r.shards)+1)
	var parts []string
	for i, s := range r.shards {
		r.starts[i+1] = r.starts[i] + s.table.Len()
		for _, p := range s.table.Parts() {
			if !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
	}
	if r.part != "" && !slices.Contains(parts, r.part) {
		return fmt.Errorf("no record has a part %s: choose --part of %s", clip(r.part), strings.Join(parts, ", "))
	}
	return nil
}

// classes returns the names of the labels, on which all shards must agree.
func (r *recordRows) classes() ([]string, error) {
	first := -1
	for i, s := range r.shards {
		switch {
		case s.table.Len() == 0:
		case first < 0:
			first = i
		case !slices.Equal(s.table.Classes, r.shards[first].table.Classes):
			return nil, fmt.Errorf("shards %s and %s have other names of classes: give a file of labels (--labels), or --flat", clip(r.shards[first].shard.Name), clip(s.shard.Name))
		}
	}
	return r.shards[first].table.Classes, nil
}

// Len and At make recordRows a sample.Listing.
func (r *recordRows) Len() int { return r.starts[len(r.shards)] }

func (r *recordRows) At(i int) sample.Entry {
	k := sort.SearchInts(r.starts, i+1) - 1
	s := r.shards[k]
	row := i - r.starts[k]
	var room [records.MostParts]records.Cell
	key, label, cells := s.table.Row(row, room[:0])
	if key == "" {
		key = s.shard.Name + "/" + strconv.Itoa(row)
	}
	e := sample.Entry{Name: key, Label: label, Version: s.shard.Version, Shard: s.shard}
	if len(cells) == 0 {
		return e
	}
	exts := s.table.Parts()
	if r.part != "" {
		if at := slices.IndexFunc(cells, func(c records.Cell) bool { return exts[c.Part] == r.part }); at > 0 {
			chosen := cells[at]
			copy(cells[1:], cells[:at])
			cells[0] = chosen
		}
	}
	e.Parts, e.Offsets = make([]sample.Part, len(cells)), make([]uint64, len(cells))
	for n, c := range cells {
		e.Parts[n], e.Offsets[n] = sample.Part{Ext: exts[c.Part], Size: uint32(c.Size), Sum: c.Sum}, uint64(c.Off)
		e.Size += uint32(c.Size)
	}
	return e
}
