package source

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"lcache/sample"
	"lcache/source/internal/tarshard"
)

// members has the samples of one shard in columns. A sample takes 12 bytes and its key, and each part 16 bytes; an
// Entry takes about 200.
type members struct {
	shard   *sample.Shard
	outside bool
	leftOut int // members that belong to no sample
	removed int // members that Options.Exts excludes

	keys   string   // concatenated
	ends   []uint32 // ends of the keys
	parts  []uint32 // end of each sample's parts
	labels []int32
	kinds  []uint32 // by part: its extension
	sizes  []uint32
	offs   []uint64
	exts   []string

	bare   int // first sample without a part cls; -1: none
	marked int // first sample with a part cls; -1: none
	wrong  int // first sample whose part cls is not a label; -1: none
	text   string
}

// len returns the number of samples. A shard that could not be listed has none.
func (m *members) len() int {
	if m == nil {
		return 0
	}
	return len(m.ends)
}

// take stores the samples of the shard in columns. The chosen part of each comes first, if one was chosen.
func (m *members) take(samples []tarshard.Sample, chosen string) error {
	keys, parts := 0, 0
	for i := range samples {
		keys, parts = keys+len(samples[i].Key), parts+len(samples[i].Parts)
	}
	if keys > math.MaxUint32 {
		return fmt.Errorf("shard %s: the names of its samples have more than 4 GiB: split it", clip(m.shard.Name))
	}
	var text strings.Builder
	text.Grow(keys)
	m.ends, m.parts, m.labels = make([]uint32, 0, len(samples)), make([]uint32, 0, len(samples)), make([]int32, 0, len(samples))
	m.kinds, m.sizes, m.offs = make([]uint32, 0, parts), make([]uint32, 0, parts), make([]uint64, 0, parts)
	m.bare, m.marked, m.wrong = -1, -1, -1
	kinds := map[string]uint32{}
	for i := range samples {
		s := &samples[i]
		text.WriteString(s.Key)
		if err := m.add(s, chosen, kinds); err != nil {
			return &SampleError{m.shard.Name + "/" + s.Key, "list", err}
		}
		m.ends, m.parts = append(m.ends, uint32(text.Len())), append(m.parts, uint32(len(m.sizes)))
		m.labels = append(m.labels, m.labelOf(i, s))
	}
	m.keys = text.String()
	return nil
}

// add appends the parts of a sample.
func (m *members) add(s *tarshard.Sample, chosen string, kinds map[string]uint32) error {
	first := firstPart(s.Parts)
	if chosen != "" {
		if first = slices.IndexFunc(s.Parts, func(p tarshard.Part) bool { return p.Ext == chosen }); first < 0 {
			return fmt.Errorf("it has no part %s: choose another --part, or give all samples one", clip(chosen))
		}
	}
	if len(s.Parts) > sample.MaxParts {
		return fmt.Errorf("it has %d parts, at most %d: split it", len(s.Parts), sample.MaxParts)
	}
	left := int64(math.MaxUint32)
	for _, p := range s.Parts {
		if p.Size < 0 || p.Size > left {
			return fmt.Errorf("its %d parts have 4 GiB or more: split it", len(s.Parts))
		}
		left -= p.Size
	}
	put := func(p tarshard.Part) {
		kind, known := kinds[p.Ext]
		if !known {
			kind = uint32(len(m.exts))
			ext := strings.Clone(p.Ext)
			m.exts, kinds[ext] = append(m.exts, ext), kind
		}
		m.kinds, m.sizes, m.offs = append(m.kinds, kind), append(m.sizes, uint32(p.Size)), append(m.offs, uint64(p.Off))
	}
	put(s.Parts[first])
	for i, p := range s.Parts {
		if i != first {
			put(p)
		}
	}
	return nil
}

// labelOf returns the label in the part cls of sample i, and notes the first sample of each kind.
func (m *members) labelOf(i int, s *tarshard.Sample) int32 {
	k := slices.IndexFunc(s.Parts, func(p tarshard.Part) bool { return p.Ext == "cls" })
	if k < 0 {
		if m.bare < 0 {
			m.bare = i
		}
		return 0
	}
	if m.marked < 0 {
		m.marked = i
	}
	p := s.Parts[k]
	n, err := strconv.ParseInt(strings.TrimSpace(p.Text), 10, 32)
	if long := p.Size > tarshard.MaxText; (long || err != nil) && m.wrong < 0 {
		if m.wrong, m.text = i, strconv.Quote(p.Text); long {
			m.text = fmt.Sprintf("a text of more than %d bytes", tarshard.MaxText)
		}
	}
	return int32(n)
}

// key returns the key of sample i.
func (m *members) key(i int) string {
	from := uint32(0)
	if i > 0 {
		from = m.ends[i-1]
	}
	return m.keys[from:m.ends[i]]
}

func (m *members) name(i int) string { return m.shard.Name + "/" + m.key(i) }

func (m *members) entry(i int) sample.Entry {
	from, to := uint32(0), m.parts[i]
	if i > 0 {
		from = m.parts[i-1]
	}
	e := sample.Entry{Name: m.name(i), Label: m.labels[i], Version: m.shard.Version, Shard: m.shard, Parts: make([]sample.Part, to-from), Offsets: m.offs[from:to:to]}
	for k := range e.Parts {
		size := m.sizes[int(from)+k]
		e.Parts[k] = sample.Part{Ext: m.exts[m.kinds[int(from)+k]], Size: size}
		e.Size += size
	}
	return e
}

// shardRows has the samples of all shards. It is a sample.Listing.
type shardRows struct {
	all    []*members
	starts []int // first sample of each shard, and the end of the last one
}

func newShardRows(all []*members) *shardRows {
	r := &shardRows{all: all, starts: make([]int, len(all)+1)}
	for i, m := range all {
		r.starts[i+1] = r.starts[i] + m.len()
	}
	return r
}

// Len and At make shardRows a sample.Listing.
func (r *shardRows) Len() int { return r.starts[len(r.all)] }

func (r *shardRows) At(i int) sample.Entry {
	k := sort.SearchInts(r.starts, i+1) - 1
	return r.all[k].entry(i - r.starts[k])
}

// firstOf returns the first sample of a kind that the shards have noted.
func (r *shardRows) firstOf(noted func(*members) int) (in *members, at int) {
	for _, m := range r.all {
		if m.len() > 0 && noted(m) >= 0 {
			return m, noted(m)
		}
	}
	return nil, -1
}

// unlabel sets all labels to 0, whatever the parts cls say.
func (r *shardRows) unlabel() {
	for _, m := range r.all {
		clear(m.labels)
	}
}

// label chooses the labels: from the parts cls if there are any, otherwise from the folders.
func (r *shardRows) label() (classes []string, err error) {
	with, i := r.firstOf(func(m *members) int { return m.marked })
	without, k := r.firstOf(func(m *members) int { return m.bare })
	if with == nil {
		return r.labelFolders()
	}
	if without != nil {
		return nil, fmt.Errorf("sample %s has a part cls, and %s has none: add one to all samples, or give a file of labels (--labels)", clip(with.name(i)), clip(without.name(k)))
	}
	if m, i := r.firstOf(func(m *members) int { return m.wrong }); m != nil {
		return nil, &SampleError{m.name(i), "list", fmt.Errorf("its part cls is %s, which is not an integer of 32 bits: correct it, or give a file of labels (--labels), or --flat", m.text)}
	}
	return nil, nil
}

// labelFolders labels samples by the folders of their members.
func (r *shardRows) labelFolders() (classes []string, err error) {
	place := map[string]int32{}
	bare := ""
	for _, m := range r.all {
		for i := range m.len() {
			if f := tarshard.Folder(m.key(i)); f == "" {
				bare = m.name(i)
			} else if _, known := place[f]; !known {
				place[f] = 0
				classes = append(classes, f)
			}
		}
	}
	if classes == nil {
		return nil, nil
	}
	if bare != "" {
		return nil, fmt.Errorf("sample %s is in no folder, but others are, so folders can't be the labels: give a file of labels (--labels), or --flat", clip(bare))
	}
	slices.SortFunc(classes, comparePython)
	for i, f := range classes {
		place[f] = int32(i)
	}
	for _, m := range r.all {
		for i := range m.len() {
			m.labels[i] = place[tarshard.Folder(m.key(i))]
		}
	}
	return classes, nil
}
