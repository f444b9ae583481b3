package source

import (
	"strings"

	"lcache/sample"
)

// columns are samples whose names, sizes, versions and labels stand in columns: a sample takes 24 bytes and its name, where an Entry takes 96 and its
// name. It is a sample.Listing once it is sorted.
type columns struct {
	chunks []chunk
	text   strings.Builder // the names of the last chunk
	rows   int
	order  []uint32 // the rows that are listed, in their order
}

const chunkRows = 1 << 12

// chunk is a block of rows.
type chunk struct {
	names    string   // one behind the other
	ends     []uint32 // of names
	sizes    []uint32
	versions []uint64
	labels   []int32
}

func (c *columns) add(name string, size uint32, version uint64) {
	if c.rows%chunkRows == 0 {
		c.seal()
		c.chunks = append(c.chunks, chunk{ends: make([]uint32, 0, chunkRows), sizes: make([]uint32, 0, chunkRows), versions: make([]uint64, 0, chunkRows), labels: make([]int32, 0, chunkRows)})
	}
	c.text.WriteString(name)
	last := &c.chunks[len(c.chunks)-1]
	last.ends, last.sizes = append(last.ends, uint32(c.text.Len())), append(last.sizes, size)
	last.versions, last.labels = append(last.versions, version), append(last.labels, 0)
	c.rows++
}

// seal ends the last chunk. No row may be added to it.
func (c *columns) seal() {
	if len(c.chunks) > 0 {
		c.chunks[len(c.chunks)-1].names = strings.Clone(c.text.String()) // without the builder's spare room
		c.text.Reset()
	}
}

func (c *columns) row(r uint32) (in *chunk, at uint32, name string) {
	in, at = &c.chunks[r/chunkRows], r%chunkRows
	from := uint32(0)
	if at > 0 {
		from = in.ends[at-1]
	}
	return in, at, in.names[from:in.ends[at]]
}

// Len and At make columns a sample.Listing.
func (c *columns) Len() int { return len(c.order) }

func (c *columns) At(i int) sample.Entry {
	in, at, name := c.row(c.order[i])
	return sample.Entry{Name: name, Size: in.sizes[at], Label: in.labels[at], Version: in.versions[at]}
}

// entriesOf is a listing as one slice.
func entriesOf(l sample.Listing) []sample.Entry {
	if e, ok := l.(sample.Entries); ok {
		return e
	}
	list := make([]sample.Entry, l.Len())
	for i := range list {
		list[i] = l.At(i)
	}
	return list
}
