package homes

import (
	"cmp"
	"slices"
)

// A Threshold says how much a peer keeps. Its upper 16 bits are whole ranks, the lower 48 a fraction: 0.4 keeps four tenths of the bins whose
// home it is, 1.6 keeps all of those and six tenths of the bins in which it is second. It takes 8 bytes on the wire, in little-endian order.
type Threshold uint64

// One is a threshold of 1: a peer keeps all bins whose home it is, and no copies.
const One Threshold = 1 << 48

// Keeps reports whether a peer with this threshold keeps a sample. rank is the peer's rank for the sample's bin, name the xxh3-64 of the sample's
// name, which counts as a fraction of 2⁶⁴.
func (t Threshold) Keeps(rank uint16, name uint64) bool { return place(rank, name) < t }

// Float returns the threshold as a number for people: 1.6 keeps 1.6 copies of an average bin of its own.
func (t Threshold) Float() float64 { return float64(t) / float64(One) }

// place returns the least threshold that does not keep a sample.
func place(rank uint16, name uint64) Threshold { return Threshold(rank)<<48 | Threshold(name>>16) }

// A Sample is what decides whether a peer keeps it.
type Sample struct {
	Bin    uint16
	Name   uint64 // xxh3-64 of its name
	Padded uint64 // bytes that it takes on disk
}

// Largest returns the largest threshold whose samples fit into room, and the sum of their bytes. n samples are given by their number; ranks are of the
// peer, peers is the number of all. If everything fits, the threshold is the number of peers: every sample is everywhere.
func Largest(ranks []uint16, peers int, n int, sample func(i int) Sample, room uint64) (t Threshold, bytes uint64) {
	const bucketBits = 10 // of the fraction
	const shift = 48 - bucketBits
	buckets := make([]uint64, peers<<bucketBits)
	var total uint64
	for i := range n {
		s := sample(i)
		buckets[place(ranks[s.Bin], s.Name)>>shift] += s.Padded
		total += s.Padded
	}
	if total <= room {
		return Threshold(peers) * One, total
	}
	b := 0
	for ; bytes+buckets[b] <= room; b++ {
		bytes += buckets[b]
	}
	// The threshold is within bucket b: look at its samples one by one.
	type entry struct {
		place  Threshold
		padded uint64
	}
	var in []entry
	for i := range n {
		s := sample(i)
		if p := place(ranks[s.Bin], s.Name); p>>shift == Threshold(b) {
			in = append(in, entry{p, s.Padded})
		}
	}
	slices.SortFunc(in, func(a, b entry) int { return cmp.Compare(a.place, b.place) })
	for i := 0; ; {
		same, j := uint64(0), i
		for ; j < len(in) && in[j].place == in[i].place; j++ {
			same += in[j].padded
		}
		if bytes+same > room { // true for the bucket's last sample at the latest, because the whole bucket does not fit
			return in[i].place, bytes
		}
		bytes += same
		i = j
	}
}
