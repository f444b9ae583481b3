package source

import (
	"strings"

	"lcache/sample"
)

// columns stores the names, sizes, versions and labels of samples in separate columns. A sample takes 24 bytes and
// its name; an Entry takes 96 and its name. Once sorted, columns is a sample.Listing.
type columns struct {
	chunks []chunk
	text   strings.Builder // names of the last chunk
	rows   int
	order  []uint32 // the listed rows, in order
}

const chunkRows = 1 << 12

// chunk is a block of rows.
type chunk struct {
	names    string   // concatenated
	ends     []uint32 // ends of the names
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

// seal closes the last chunk. No row may be added to it afterwards.
func (c *columns) seal() {
	if len(c.chunks) > 0 {
		c.chunks[len(c.chunks)-1].names = strings.Clone(c.text.String()) // drops the builder's spare room
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

// entriesOf returns a listing as one slice.
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
