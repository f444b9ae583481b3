package memory

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"lcache/sample"
)

// TestCells: written bytes are read back, freed cells are reused, and no byte of one chain gets into another.
func TestCells(t *testing.T) {
	c := cellsOf(128)
	defer c.close()
	r := rand.New(rand.NewPCG(1, 2))
	have := map[uint32][]byte{}
	for range 20_000 {
		if len(have) > 100 {
			for cell := range have {
				c.free(cell)
				delete(have, cell)
				break
			}
		}
		data := make([]byte, 1+r.IntN(200))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		x, err := c.take(len(data))
		if err != nil || have[x.first] != nil {
			t.Fatal("no cell, or one that is taken", err)
		}
		x.write(data)
		have[x.first] = data
		for cell, want := range have {
			x, got := c.chain(cell), make([]byte, len(want))
			if x.read(got); !bytes.Equal(got, want) || x.sum(len(want)) != sample.Sum(want) {
				t.Fatal("other bytes than were written")
			}
			break
		}
	}
	if len(c.chunks) > 2 {
		t.Errorf("%d chunks for 100 chains: cells do not come back", len(c.chunks))
	}
}

// TestCellsOfLargeSamples: for a dataset of large samples, one mapping is not larger than the system allows.
func TestCellsOfLargeSamples(t *testing.T) {
	for _, mean := range []int{100, 16 << 10, 100 << 20, 1 << 30, 4<<30 - 1} {
		c := cellsOf(mean)
		x, err := c.take(1)
		if err != nil {
			t.Fatal(err)
		}
		x.write([]byte{1})
		if mapped := len(c.chunks[0].bytes); mapped > max(chunkBytes, mean/cellsEach+1) || mapped < mean/cellsEach {
			t.Errorf("samples of %d bytes: %d bytes are mapped at once", mean, mapped)
		}
		c.close()
	}
}

// TestMappedIsBounded: samples that come and go map at most the bytes that are kept at once, plus two chunks of
// cells.
func TestMappedIsBounded(t *testing.T) {
	d := newSamples(t)
	h := d.newBytes(t)
	r := rand.New(rand.NewPCG(5, 6))
	most := int64(0)
	for range 5000 {
		i := sample.Index(r.IntN(40))
		if h.Has(i) {
			h.free(i)
		} else {
			h.keep(i, d.bytes[i])
		}
		if most = max(most, h.Taken()); bytesMapped(h) > most+2*chunkCells*int64(h.cells.size) {
			t.Fatalf("%d bytes are mapped for %d", bytesMapped(h), most)
		}
	}
}
