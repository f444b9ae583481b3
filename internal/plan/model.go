package plan

import "math"

// Model computes plans from one set of Facts.
type Model struct {
	f      Facts
	mean   float64 // s: bytes of a sample
	stored float64 // ρ·s: bytes of a sample on disk
	node   float64 // V: bytes that one node consumes in an epoch
}

// New checks facts, and fills in defaults. Its error names the invalid fact.
func New(f Facts) (*Model, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	f = f.withDefaults()
	mean := f.DatasetBytes / f.Samples
	return &Model{f: f, mean: mean, stored: mean * f.StoredRatio, node: f.DatasetBytes / f.Nodes}, nil
}

// Facts returns the facts with defaults filled in.
func (m *Model) Facts() Facts { return m.f }

// with returns a Model of changed facts, which must be valid.
func (m *Model) with(change func(*Facts)) *Model {
	other := *m
	change(&other.f)
	return &other
}

// sized reports whether Facts.Sizer replaces the formulas.
func (m *Model) sized(p Policy) bool { return m.f.Sizer != nil && (p == Log || p == Static) }

// homes returns the number of nodes over which one copy of the dataset is spread.
func (m *Model) homes(p Policy) float64 {
	if p.peers() {
		return m.f.Nodes
	}
	return 1
}

// arena returns the block and segment that ingest would choose, and the part of the dataset that the budget then
// holds. withMisses says that memory for samples that are not admitted is needed, even if all samples fit.
func (m *Model) arena(p Policy, withMisses bool) (z Sizes, sp Space, fits bool) {
	if m.sized(p) {
		return m.f.Sizer(m.f, p.inPlace())
	}
	homes := m.homes(p)
	padded := Padded(m.f.DatasetBytes*m.f.StoredRatio, m.f.Samples) / homes
	share := min(m.mostCopies(p), m.f.CacheBytes/padded)
	need := m.memory(p, share)
	z, fits = need.Fit(m.f.MemoryBytes, m.f.CacheBytes, m.f.Device.SmallestBlock(), func(z Sizes) float64 {
		if withMisses || NewSpace(padded, m.f.CacheBytes, z).Hit < 1 {
			return m.missBytes()
		}
		return 0
	})
	return z, NewSpace(padded, m.f.CacheBytes, z), fits
}

// memory describes the need of a log that keeps a share of the dataset, with the minimum that clients may hold and without misses.
func (m *Model) memory(p Policy, share float64) Memory {
	homes := m.homes(p)
	need := Memory{
		KeptBytes: share * Padded(m.f.DatasetBytes, m.f.Samples) / homes, LargestBytes: m.f.LargestBytes, BlockBytes: m.f.BlockBytes,
		Devices: m.f.Devices, Ranks: m.f.Ranks, HeldBytes: m.batches(), SideBytes: m.f.SideBytes, Samples: m.f.Samples,
	}
	need.SideBytes += m.unpacking()
	if p.peers() {
		need.SideBytes, need.Samples = need.SideBytes+m.peerMemory(p), 0
		need.WindowBytes = m.f.PeerBytes
	}
	return need
}

// mostCopies returns the most copies of its share that a node keeps (T): the log layout reads and writes everything that it keeps, so it keeps none twice.
func (m *Model) mostCopies(p Policy) float64 {
	if p == PeerStatic {
		return m.f.Nodes
	}
	return 1
}

// copies returns T: how often each node keeps its share of the dataset, while peers together hold the share hit; 0: there are no peers.
func (m *Model) copies(p Policy, hit float64, sp Space) float64 {
	switch {
	case !p.peers():
		return 0
	case hit < 1:
		return hit
	}
	return clip(sp.Copies, 1, m.mostCopies(p))
}

// batches returns the bytes of one batch of each rank on this node.
func (m *Model) batches() float64 { return m.f.Ranks * m.f.Batch * m.mean }

// mostHeld returns the bytes that clients may hold if memory allows it.
func (m *Model) mostHeld() float64 { return m.f.Ranks * max(2*m.f.Batch*m.mean, leastCredit) }

// unpacking returns the memory for decompression.
func (m *Model) unpacking() float64 {
	if m.f.StoredRatio == 1 {
		return 0
	}
	return 2*blocksAhead*defaultBlock*m.f.Devices + m.f.LargestBytes
}

// peerMemory returns the memory for tables of the whole dataset, for samples between peers and, with the log layout, for demands of the node's share.
func (m *Model) peerMemory(p Policy) float64 {
	bytes := m.f.PeerBytes + peerTables*m.f.Samples
	if p == PeerLog {
		bytes += demandBytes * m.f.Samples / m.f.Nodes
	}
	return bytes
}

// missBytes returns the size of the miss ring: one second of the source's rate, and at least two steps.
func (m *Model) missBytes() float64 {
	rate := math.Inf(1)
	for _, r := range []float64{m.f.Source.BPS / m.f.Nodes, m.f.Source.NodeBPS, m.f.Source.Ops * m.mean / m.f.Nodes} {
		if r > 0 {
			rate = min(rate, r)
		}
	}
	if math.IsInf(rate, 1) {
		rate = 0
	}
	return max(leastMisses, 2*m.batches(), rate)
}

// top returns the largest hit ratio that a policy reaches with the budget, and its arena.
func (m *Model) top(p Policy) (hit float64, z Sizes, sp Space, fits bool) {
	switch {
	case p == MinIO:
		return min(1, m.f.CacheBytes/m.f.DatasetBytes/m.f.StoredRatio), Sizes{}, Space{}, true
	case p == TwoLogfile:
		return min(1, m.f.CacheBytes/(2*m.f.DatasetBytes)/m.f.StoredRatio), Sizes{}, Space{}, true
	case p.arena():
		z, sp, fits = m.arena(p, false)
		hit = sp.Hit
		if p == OwnLog {
			hit, _ = NextUseAt(m.f.Nodes, hit)
		}
		return hit, z, sp, fits
	}
	return 0, Sizes{}, Space{}, true
}

// need returns the memory that a policy uses at a hit ratio: all that the limit allows, or its minimum if the limit
// is too small.
func (m *Model) need(p Policy, hit float64, z Sizes, sp Space, fits bool) (Sizes, bool) {
	switch {
	case m.sized(p):
		return z, fits
	case p.inPlace():
		z.MemoryBytes, fits = m.inPlaceMemory(p, hit)
		return z, fits
	case !p.reorders():
		z.MemoryBytes = 3*m.batches() + m.readAhead(m.mean)
		return z, z.MemoryBytes <= m.f.MemoryBytes
	case !fits:
		return z, false
	}
	kept := hit
	if p == OwnLog {
		kept = min(sp.Hit, m.f.Admit)
	}
	roomy := m.memory(p, kept)
	roomy.BlockBytes, roomy.Spill, roomy.HeldBytes = z.BlockBytes, z.Spill, m.mostHeld()
	if hit < 1 {
		roomy.MissBytes = m.missBytes()
	}
	z = roomy.Sizes()
	z.MemoryBytes = min(z.MemoryBytes, m.f.MemoryBytes)
	return z, true
}

// inPlaceMemory returns the memory for random reads: what clients hold, a batch ahead of it, and the reads in flight.
func (m *Model) inPlaceMemory(p Policy, hit float64) (bytes float64, fits bool) {
	rest := m.batches() + m.readAhead(m.stored) + m.f.SideBytes + m.unpacking()
	if p.peers() {
		rest += m.peerMemory(p)
	} else {
		rest += indexBytes * m.f.Samples
	}
	if hit < 1 {
		rest += m.missBytes()
	}
	if least := rest + m.batches(); least > m.f.MemoryBytes {
		return least, false
	}
	return min(m.f.MemoryBytes, rest+m.mostHeld()), true
}

// readAhead returns the memory for a full queue of samples, each rounded out to pages.
func (m *Model) readAhead(sample float64) float64 {
	return m.f.Device.QueueDepth * (sample + pageBytes)
}
