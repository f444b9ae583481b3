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
	part   string // comes first: all samples must have it; "": none was chosen
	own    bool   // if no part was chosen, the first part of a sample is its own
}

type recordShard struct {
	table   *records.Table
	shard   *sample.Shard
	outside bool
}

func newRecordRows(shards int, part string, own bool) *recordRows {
	return &recordRows{shards: make([]recordShard, shards), part: part, own: own}
}

// seal computes the positions of the shards, and checks that all samples have the chosen part.
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
	if r.part == "" {
		return nil
	}
	if !slices.Contains(parts, r.part) {
		return fmt.Errorf("no record has a part %s: choose --part of %s", clip(r.part), strings.Join(parts, ", "))
	}
	for i, s := range r.shards {
		if n, row := s.table.Lacking(r.part); n > 0 {
			return &SampleError{r.At(r.starts[i] + row).Name, "list", fmt.Errorf("it has no part %s: choose another --part, or give all samples one", clip(r.part))}
		}
	}
	return nil
}

// empty returns how many samples have an empty first part in place of one that they lack, the first of them, and the name of that part.
func (r *recordRows) empty() (samples, first int, part string) {
	if r.part != "" || r.own {
		return 0, 0, ""
	}
	for i, s := range r.shards {
		if len(s.table.Parts()) < 2 {
			continue
		}
		n, row := s.table.Lacking(s.table.Parts()[0])
		if samples == 0 {
			first, part = r.starts[i]+row, s.table.Parts()[0]
		}
		samples += n
	}
	return samples, first, part
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
		records.MoveFirst(cells, slices.Index(exts, r.part))
	}
	lacking := 0
	if r.part == "" && !r.own && cells[0].Part != 0 {
		lacking = 1
	}
	e.Parts, e.Offsets = make([]sample.Part, 0, lacking+len(cells)), make([]uint64, 0, lacking+len(cells))
	if lacking > 0 { // no other part takes the place of the first one
		e.Parts, e.Offsets = append(e.Parts, sample.Part{}), append(e.Offsets, uint64(cells[0].Off))
	}
	for _, c := range cells {
		e.Parts, e.Offsets = append(e.Parts, sample.Part{Ext: exts[c.Part], Size: uint32(c.Size), Sum: c.Sum}), append(e.Offsets, uint64(c.Off))
		e.Size += uint32(c.Size)
	}
	return e
}
