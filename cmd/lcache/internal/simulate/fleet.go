package simulate

import (
	"fmt"

	"lcache/internal/cluster/homes"
)

// Fleet is a cluster of lcache servers. It goes through orders, and says for each read where the server gets the sample. NewFleet spreads the samples over
// the servers as they do, by internal/cluster/homes. A Fleet must not be used concurrently, except for different samples.
type Fleet struct {
	sample     func(k uint32) homes.Sample
	thresholds []homes.Threshold
	home       []uint16                          // by bin
	second     []uint16                          // by bin; nil: there is one machine
	rank       func(peer int, bin uint16) uint16 // 0 where the peer is the home

	wasRead []bool // by sample: whoever keeps it first has it
	copies  []byte // a bit for each sample and peer: the peer has received it, and keeps it as a copy
	stride  int    // bytes of copies for each sample
}

// Served counts the samples that a machine delivers in an epoch, by origin.
type Served struct {
	Local  int64 `json:"local"`
	Peer   int64 `json:"peer"`
	Source int64 `json:"source"`
}

// NewFleet returns the cluster of some machines, whose caches are empty. rooms are bytes for samples on the disks of each machine.
func NewFleet(samples []homes.Sample, peers []homes.Peer, rooms []uint64) (*Fleet, error) {
	if len(peers) < 1 || len(peers) > homes.MaxPeers || len(rooms) != len(peers) {
		return nil, fmt.Errorf("%d machines with %d rooms: give 1 to %d, each with its room", len(peers), len(rooms), homes.MaxPeers)
	}
	loads := make([]uint64, homes.Bins)
	for _, s := range samples {
		loads[s.Bin] += s.Padded
	}
	h := homes.New(peers, loads)
	f := &Fleet{sample: func(k uint32) homes.Sample { return samples[k] }, home: make([]uint16, homes.Bins)}
	ranks := make([][]uint16, len(peers))
	for p, room := range rooms {
		ranks[p] = h.Ranks(p)
		t, _ := homes.Largest(ranks[p], len(peers), len(samples), func(i int) homes.Sample { return samples[i] }, room)
		f.thresholds = append(f.thresholds, t)
	}
	f.rank = func(peer int, bin uint16) uint16 { return ranks[peer][bin] }
	if len(peers) > 1 {
		f.second = make([]uint16, homes.Bins)
	}
	for bin := range f.home {
		f.home[bin] = uint16(h.Home(uint16(bin)))
		if second, ok := h.Second(uint16(bin)); ok {
			f.second[bin] = uint16(second)
		}
	}
	f.begin(len(samples))
	return f, nil
}

// madeUpFleet returns a cluster of alike machines that keep so many copies of their shares, and samples that are spread evenly. There is no manifest whose
// names would say where a sample is.
func madeUpFleet(samples, machines int, copies float64) *Fleet {
	f := &Fleet{home: make([]uint16, homes.Bins), second: make([]uint16, homes.Bins), thresholds: make([]homes.Threshold, machines)}
	f.sample = func(k uint32) homes.Sample {
		u := spread(uint64(k))
		return homes.Sample{Bin: uint16(u), Name: spread(u), Padded: 1}
	}
	for p := range f.thresholds {
		f.thresholds[p] = homes.Threshold(copies * float64(homes.One))
	}
	for bin := range f.home {
		f.home[bin] = uint16(bin * machines / homes.Bins)
		f.second[bin] = uint16((bin*machines/homes.Bins + 1) % machines)
	}
	f.rank = func(peer int, bin uint16) uint16 { return uint16((peer - int(f.home[bin]) + machines) % machines) }
	f.begin(samples)
	return f
}

// begin makes the tables of what the machines have.
func (f *Fleet) begin(samples int) {
	f.wasRead = make([]bool, samples)
	for _, t := range f.thresholds {
		if t > homes.One {
			f.stride = copyBytes(len(f.thresholds))
		}
	}
	f.copies = make([]byte, f.stride*samples)
}

// copyBytes is what copies take for each sample.
func copyBytes(machines int) int { return (machines + 7) / 8 }

// Threshold returns how much a machine keeps.
func (f *Fleet) Threshold(peer int) homes.Threshold { return f.thresholds[peer] }

// holder returns the machine that others request a sample from: its home, or the second machine if the home does not keep it; -1: neither does.
func (f *Fleet) holder(s homes.Sample) int {
	if home := int(f.home[s.Bin]); f.thresholds[home].Keeps(0, s.Name) {
		return home
	}
	if f.second != nil {
		if second := int(f.second[s.Bin]); f.thresholds[second].Keeps(1, s.Name) {
			return second
		}
	}
	return -1
}

// read reads a sample on a machine, and returns where it comes from: local, a peer, or the source. What the machine keeps of it, it has from then on.
func (f *Fleet) read(peer int, k uint32) origin {
	s := f.sample(k)
	if s.Padded == 0 {
		return fromLocal // an empty sample is never requested
	}
	holder, wasRead := f.holder(s), f.wasRead[k]
	f.wasRead[k] = true
	if holder == peer {
		if wasRead {
			return fromLocal
		}
		return fromSource
	}
	if f.stride > 0 && f.thresholds[peer].Keeps(f.rank(peer, s.Bin), s.Name) {
		b, bit := &f.copies[int(k)*f.stride+peer/8], byte(1)<<(peer%8)
		if *b&bit != 0 {
			return fromLocal
		}
		*b |= bit
	}
	if holder >= 0 && wasRead {
		return fromPeer
	}
	return fromSource
}

// origin is where a machine of a Fleet gets a sample.
type origin uint8

const (
	fromSource origin = iota // the machine, or for it the holder, reads the source
	fromPeer
	fromLocal
)

// Epoch goes through the order of an epoch: the samples that each machine reads. Machines read the same epoch at the same time, and begin the next one
// together. It returns what each machine delivers.
func (f *Fleet) Epoch(orders [][]uint32) ([]Served, error) {
	if len(orders) != len(f.thresholds) {
		return nil, fmt.Errorf("%d orders for %d machines", len(orders), len(f.thresholds))
	}
	served := make([]Served, len(orders))
	for peer, order := range orders {
		for _, k := range order {
			if int(k) >= len(f.wasRead) {
				return nil, fmt.Errorf("machine %d reads index %d of %d samples", peer, k, len(f.wasRead))
			}
			switch f.read(peer, k) {
			case fromLocal:
				served[peer].Local++
			case fromPeer:
				served[peer].Peer++
			default:
				served[peer].Source++
			}
		}
	}
	return served, nil
}
