package importance

import (
	"slices"

	"lcache/offheap"
	"lcache/sample"
)

// Packages keeps the books of packages: unordered pieces of the log that hold L-samples, which no promised order names (ImPACT §III-D). A sample is in at most
// one. Which package a sample goes to is random, so that each is a mixture. Where the bytes lie is the log's business.
type Packages struct {
	seed   uint64
	full   int64 // bytes at which a package is sealed
	in     []uint32
	open   []uint32 // the packages that are being filled
	all    map[uint32]*pack
	newest uint32
	turn   uint64 // counts packings, for the choice
	credit int64  // bytes that may still be repacked
	sealed int    // ever
}

type pack struct {
	members     []sample.Index // also those that have left
	live        int
	bytes, held int64 // written, and still live
	sealed      bool
}

// NewPackages returns the books of n samples, with so many packages open at once, each sealed when it has full bytes.
func NewPackages(n, open int, full int64, seed uint64) (*Packages, error) {
	in, err := offheap.Make[uint32](n)
	if err != nil {
		return nil, err
	}
	return &Packages{seed: seed, full: full, in: in, open: make([]uint32, max(open, 1)), all: map[uint32]*pack{}}, nil
}

// Close gives the memory back.
func (p *Packages) Close() {
	offheap.Free(p.in)
	p.in = nil
}

// Pack appends a sample to an open package and returns that package's number, and whether it is sealed now. A copy of the sample in another package
// becomes a hole.
func (p *Packages) Pack(id sample.Index, bytes int64) (number uint32, sealed bool) {
	if int(id) >= len(p.in) {
		return 0, false
	}
	p.Leave(id, bytes)
	slot := mix(mix(p.seed^uint64(id))^p.turn) % uint64(len(p.open))
	p.turn++
	if p.open[slot] == 0 {
		p.newest++
		p.open[slot] = p.newest
		p.all[p.newest] = &pack{}
	}
	number = p.open[slot]
	k := p.all[number]
	k.members = append(k.members, id)
	k.live++
	k.bytes += bytes
	k.held += bytes
	p.in[id] = number
	if k.bytes >= p.full {
		k.sealed, sealed = true, true
		p.open[slot] = 0
		p.sealed++
	}
	return number, sealed
}

// Leave makes a hole of a sample that became an H-sample, or that was written elsewhere. A sealed package without samples is gone.
func (p *Packages) Leave(id sample.Index, bytes int64) {
	if int(id) >= len(p.in) || p.in[id] == 0 {
		return
	}
	number := p.in[id]
	k := p.all[number]
	p.in[id] = 0
	k.live--
	k.held -= bytes
	if k.live == 0 && k.sealed {
		delete(p.all, number)
	}
}

// In is the package that has a sample; 0: none has.
func (p *Packages) In(id sample.Index) uint32 {
	if int(id) >= len(p.in) {
		return 0
	}
	return p.in[id]
}

// Members are the samples of a package that did not leave, in the order of packing.
func (p *Packages) Members(number uint32) (out []sample.Index) {
	k := p.all[number]
	if k == nil {
		return nil
	}
	seen := make(map[sample.Index]bool, k.live)
	for _, id := range slices.Backward(k.members) { // a sample that left and came back has its place at the end
		if p.in[id] == number && !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	slices.Reverse(out)
	return out
}

// Loading is the order in which an epoch reads the sealed packages: random, by the seed.
func (p *Packages) Loading(epoch int) []uint32 {
	return p.shuffled(epoch, func(*pack) bool { return true })
}

// Sparse are the sealed packages of which less than half of the bytes are live, in a random order: their survivors are to be packed again.
func (p *Packages) Sparse(epoch int) []uint32 {
	return p.shuffled(epoch, func(k *pack) bool { return k.held*2 < k.bytes })
}

func (p *Packages) shuffled(epoch int, want func(*pack) bool) (out []uint32) {
	for number := uint32(1); number <= p.newest && number != 0; number++ {
		if k := p.all[number]; k != nil && k.sealed && want(k) {
			out = append(out, number)
		}
	}
	newStream(p.seed, uint64(epoch), streamLow).shuffle(out)
	return out
}

// Consumed allows as many bytes to be repacked as were consumed: repacking never writes more than training reads.
func (p *Packages) Consumed(bytes int64) { p.credit += bytes }

// Repack says what to pack next within the bytes that are allowed: first the samples that were asked for and absent, in that order, then the survivors of
// sparse packages.
func (p *Packages) Repack(asked []sample.Index, epoch int, size func(sample.Index) int64) (out []sample.Index) {
	took := map[sample.Index]bool{}
	take := func(id sample.Index) bool {
		if took[id] {
			return true
		}
		bytes := size(id)
		if bytes > p.credit {
			return false
		}
		p.credit -= bytes
		took[id] = true
		out = append(out, id)
		return true
	}
	for _, id := range asked {
		if !take(id) {
			return out
		}
	}
	for _, number := range p.Sparse(epoch) {
		for _, id := range p.Members(number) {
			if !take(id) {
				return out
			}
		}
	}
	return out
}

// Sealed is how many packages were ever written.
func (p *Packages) Sealed() int { return p.sealed }
