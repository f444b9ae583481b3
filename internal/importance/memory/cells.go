package memory

import (
	"fmt"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// cells is memory in cells of one size. A sample that is longer than a cell uses a chain of cells. The owner locks it.
type cells struct {
	grid
	unused uint32 // the first free cell plus 1; 0: none
}

// grid locates cells. A copy of it stays valid while more cells are mapped.
type grid struct {
	size   int    // of a cell, in bytes
	each   uint32 // cells in a chunk
	chunks []chunkOfCells
}

// chunkOfCells are cells that are mapped at once.
type chunkOfCells struct {
	bytes []byte
	next  []uint32 // by cell: the next cell of the chain plus 1; 0: it is the last
}

// cellsEach is the number of cells for a sample of mean size. chunkCells cells are mapped at once, but at most
// chunkBytes, because the system refuses a mapping larger than its memory.
const (
	cellsEach  = 8
	chunkCells = 1024
	chunkBytes = 64 << 20
)

func newCells(m *sample.Manifest) *cells {
	return cellsOf(int(m.Bytes()) / max(m.Len(), 1))
}

// cellsOf returns empty cells for samples of a mean size.
func cellsOf(mean int) *cells {
	size := max(16, (mean+cellsEach-1)/cellsEach)
	return &cells{grid: grid{size: size, each: uint32(max(1, min(chunkCells, chunkBytes/size)))}}
}

func (c *cells) close() {
	for _, chunk := range c.chunks {
		offheap.Free(chunk.bytes)
	}
	c.chunks, c.unused = nil, 0
}

// round returns n rounded up to whole cells.
func (g *grid) round(n int64) int64 {
	size := int64(g.size)
	return (n + size - 1) / size * size
}

// at returns a cell's bytes.
func (g *grid) at(cell uint32) []byte {
	k := int(cell % g.each)
	return g.chunks[cell/g.each].bytes[k*g.size : (k+1)*g.size]
}

// after returns a pointer to the link of a cell: the next cell of its chain plus 1, or 0 for the last.
func (g *grid) after(cell uint32) *uint32 { return &g.chunks[cell/g.each].next[cell%g.each] }

// take returns a chain of free cells for n bytes, at least one cell.
func (c *cells) take(n int) (chain, error) {
	first := uint32(0) // the cell plus 1
	for left := c.round(int64(max(n, 1))); left > 0; left -= int64(c.size) {
		if c.unused == 0 {
			if err := c.grow(); err != nil {
				if first > 0 {
					c.free(first - 1)
				}
				return chain{}, err
			}
		}
		cell := c.unused - 1
		c.unused, *c.after(cell) = *c.after(cell), first
		first = cell + 1
	}
	return c.chain(first - 1), nil
}

// grow maps more cells.
func (c *cells) grow() error {
	bytes, err := offheap.MakeDense[byte](int(c.each) * c.size)
	if err != nil {
		return fmt.Errorf("cells for samples: %w", err)
	}
	from := uint32(len(c.chunks)) * c.each
	c.chunks = append(c.chunks, chunkOfCells{bytes, make([]uint32, c.each)})
	for k := range c.each {
		*c.after(from + k), c.unused = c.unused, from+k+1
	}
	return nil
}

// free frees a chain.
func (c *cells) free(first uint32) {
	for cell := first; ; {
		after := *c.after(cell)
		*c.after(cell), c.unused = c.unused, cell+1
		if after == 0 {
			return
		}
		cell = after - 1
	}
}

// chain returns the chain that begins with a cell.
func (c *cells) chain(first uint32) chain { return chain{c.grid, first} }

// A chain is the cells of one sample. Its holder needs no lock.
type chain struct {
	grid
	first uint32
}

// all calls yield with the bytes of each cell, in order.
func (c *chain) all(yield func([]byte) bool) {
	for cell := c.first; yield(c.at(cell)); cell-- {
		if cell = *c.after(cell); cell == 0 {
			return
		}
	}
}

// write copies bytes into the cells, which must have room for them.
func (c *chain) write(data []byte) {
	for cell := range c.all {
		data = data[copy(cell, data):]
	}
}

// read copies the first bytes of the cells to dst.
func (c *chain) read(dst []byte) {
	for cell := range c.all {
		dst = dst[copy(dst, cell):]
	}
}

// sum returns the checksum of the first n bytes.
func (c *chain) sum(n int) uint64 {
	var s sample.Summer
	for cell := range c.all {
		part := cell[:min(n, len(cell))]
		s.Add(part)
		n -= len(part)
	}
	return s.Sum()
}
