package records

import (
	"encoding/binary"
	"math/bits"
)

// hybrid decodes Parquet's mix of runs and packed bits, of which definition levels and positions in a dictionary are made.
type hybrid struct {
	b     []byte
	width int // bits of a value: 0 to 32

	run    uint64 // values left of a run
	value  uint32
	packed uint64 // values left of packed bits
	bits   []byte
	bit    int
}

// next returns the next value; ok is false at the end.
func (h *hybrid) next() (v uint32, ok bool) {
	for h.run == 0 && h.packed == 0 {
		head, n := binary.Uvarint(h.b)
		if n <= 0 {
			return 0, false
		}
		h.b = h.b[n:]
		if head&1 == 0 {
			bytes := (h.width + 7) / 8
			if bytes > len(h.b) {
				return 0, false
			}
			h.value = 0
			for k, c := range h.b[:bytes] {
				h.value |= uint32(c) << (8 * k)
			}
			h.run, h.b = head>>1, h.b[bytes:]
			continue
		}
		groups := head >> 1
		if groups > uint64(len(h.b)) && h.width > 0 || groups > 1<<32 {
			groups = uint64(len(h.b)) // writers may cut off the last group
		}
		bytes := min(int(groups)*h.width, len(h.b))
		h.bits, h.b, h.bit = h.b[:bytes], h.b[bytes:], 0
		if h.packed = groups * 8; h.width > 0 {
			h.packed = min(h.packed, uint64(len(h.bits))*8/uint64(h.width))
		}
		if h.packed == 0 {
			return 0, false
		}
	}
	if h.run > 0 {
		h.run--
		return h.value, true
	}
	h.packed--
	at := h.bit / 8
	if at+8 <= len(h.bits) {
		v = uint32(binary.LittleEndian.Uint64(h.bits[at:]) >> (h.bit % 8) & (1<<h.width - 1)) // 7 and 32 bits fit
	} else {
		for k := range h.width {
			if at := h.bit + k; h.bits[at/8]>>(at%8)&1 != 0 {
				v |= 1 << k
			}
		}
	}
	h.bit += h.width
	return v, true
}

// width returns the number of bits of levels from 0 to most.
func levelWidth(most int) int { return bits.Len(uint(most)) }

// deltas decodes DELTA_BINARY_PACKED, an encoding of integers.
type deltas struct {
	b      []byte
	bad    bool
	block  int // values in a block
	minis  int // miniblocks in a block
	left   uint64
	value  int64
	first  bool
	least  int64
	widths []byte
	mini   int // of the next miniblock
	inMini int // values left of it
	bits   []byte
	bit    int
	width  int
}

func newDeltas(b []byte) *deltas {
	d := &deltas{b: b, first: true}
	block, minis := d.uvarint(), d.uvarint()
	d.left = d.uvarint()
	d.value = d.zigzag()
	if d.bad || block == 0 || block > 1<<20 || minis == 0 || minis > 512 || block%minis != 0 || block/minis%8 != 0 {
		d.bad = true
		return d
	}
	d.block, d.minis = int(block), int(minis)
	d.mini = d.minis
	return d
}

func (d *deltas) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *deltas) zigzag() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// next returns the next value; ok is false at the end.
func (d *deltas) next() (v int64, ok bool) {
	if d.bad || d.left == 0 {
		return 0, false
	}
	d.left--
	if d.first {
		d.first = false
		return d.value, true
	}
	if d.inMini == 0 && !d.begin() {
		return 0, false
	}
	delta := uint64(0)
	for k := range d.width {
		if at := d.bit + k; d.bits[at/8]>>(at%8)&1 != 0 {
			delta |= 1 << k
		}
	}
	d.bit += d.width
	d.inMini--
	d.value += d.least + int64(delta)
	return d.value, true
}

// begin begins the next miniblock, and if the last one of a block has ended, the next block.
func (d *deltas) begin() bool {
	if d.mini == d.minis {
		if d.least = d.zigzag(); d.bad || len(d.b) < d.minis {
			return false
		}
		d.widths, d.b, d.mini = d.b[:d.minis], d.b[d.minis:], 0
	}
	d.width, d.inMini, d.bit = int(d.widths[d.mini]), d.block/d.minis, 0
	d.mini++
	bytes := d.width * d.inMini / 8
	if d.width > 64 || bytes > len(d.b) {
		return false
	}
	d.bits, d.b = d.b[:bytes], d.b[bytes:]
	return true
}
