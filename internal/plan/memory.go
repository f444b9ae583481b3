package plan

import "math"

// Memory is the input for the memory need of a reordered log. All are bytes or counts.
type Memory struct {
	KeptBytes    float64 // S_k: bytes in the log, uncompressed, with the padding of the arena
	LargestBytes float64 // the largest sample
	BlockBytes   float64 // W
	Devices      float64
	Ranks        float64
	HeldBytes    float64 // L: maximum bytes that clients hold at once
	SideBytes    float64 // X: for requests by index
	MissBytes    float64 // for samples that are not admitted
	WindowBytes  float64 // minimum that slots other than one hold: of a peer the memory for samples between peers
	Samples      float64 // F, for the MetaIndex
	Spill        bool    // tails are written to disk as short blocks, instead of waiting in memory
}

// Sizes are the resulting parts: segments of whole blocks, slots that hold one each, and the sum.
type Sizes struct {
	BlockBytes   float64 `json:"block_bytes"`
	SegmentBytes float64 `json:"segment_bytes"`
	Segments     float64 `json:"segments"`
	Slots        float64 `json:"slots"`
	Spill        bool    `json:"tails_spilled"`
	MemoryBytes  float64 `json:"memory_bytes"`
}

// Sizes returns the sizes. A segment of √(S·W) bytes needs the least memory: half of it in slots, and half in the write buffers of the next epoch and
// the tails of the current one.
func (m Memory) Sizes() Sizes {
	w, tails := m.BlockBytes, 2.0
	root := math.Sqrt(m.KeptBytes * w)
	if m.Spill {
		tails, root = 1, math.Sqrt(m.KeptBytes*w/2)
	}
	z := Sizes{BlockBytes: w, Spill: m.Spill}
	z.SegmentBytes = w * max(1, math.Ceil(max(root, m.LargestBytes)/w))
	z.Segments = math.Ceil(m.KeptBytes / z.SegmentBytes)
	z.Slots = 2 + math.Floor(m.HeldBytes/z.SegmentBytes)
	if m.Ranks > 1 {
		z.Slots = max(z.Slots, 3)
	}
	z.Slots = max(z.Slots, 1+math.Ceil(m.WindowBytes/z.SegmentBytes))
	z.MemoryBytes = z.Slots*z.SegmentBytes + tails*z.Segments*w + (blocksAhead*m.Devices+blocksAhead)*w +
		m.SideBytes + m.MissBytes + indexBytes*m.Samples
	return z
}

// Fit returns the sizes with the largest block for which memory fits into limit bytes and slack into budget bytes of
// disk. It halves m.BlockBytes down to least; then it spills tails. If that is not enough, fits is false, and the
// sizes are the minimum that is needed. missBytes, if not nil, returns the memory for misses.
func (m Memory) Fit(limit, budget, least float64, missBytes func(Sizes) float64) (z Sizes, fits bool) {
	at := func(w float64) Sizes {
		m.BlockBytes = w
		if missBytes != nil {
			m.MissBytes = 0
			m.MissBytes = missBytes(m.Sizes())
		}
		return m.Sizes()
	}
	w := m.BlockBytes
	for w/2 >= least && 32*w > budget/100 {
		w /= 2
	}
	z = at(w)
	for z.MemoryBytes > limit && w/2 >= least {
		w /= 2
		z = at(w)
	}
	if z.MemoryBytes > limit {
		m.Spill = true
		z = at(w)
	}
	return z, z.MemoryBytes <= limit
}
