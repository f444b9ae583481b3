package substitute

import (
	"math/bits"

	"lcache/internal/importance/policy"
	"lcache/sample"
)

// Law is the law of substitution for one job: when may a sample be served in place of the one that the job's order has? It knows batches, and what is counted;
// which samples could stand in is the business of a [Keeper]. The four rules:
//
//   - Off unless the user allowed it. Never for a request that is not the epoch's own, as those of a validation job, and never for an H-sample, whether it is in memory or not.
//   - What is served is one whole sample: its bytes, index, label and name. So the caller goes on with the served index alone.
//   - A substitute is what the Keeper has: for [Low] a loaded L-sample that the job was not served in this epoch ([LCache]), for [Class] a node that lists the
//     sample as its neighbour, of the same class by the labels of now ([policy.Homophily]).
//   - Never the same sample twice in a batch. A substitute is refused if the batch has asked for it anywhere, or has it already. Then the sample is read exactly.
//
// A sample that can't be read is an error, and no reason for a substitute: the law is asked before anything is read.
type Law struct {
	keeper Keeper
	high   func(sample.Index) bool
	rule   string // "": nothing is allowed
	here   few

	uses        map[sample.Index]int // of each substitute in this epoch, with Class
	substituted int64
	most        int
}

// Keeper has the samples that may stand in for others. [LCache] and [policy.Homophily] are Keepers, and so is each [policy.Policy].
type Keeper interface {
	// Get says which sample serves a request for id: itself, a substitute that may allows, or none.
	Get(id sample.Index, may policy.May) (served sample.Index, k policy.Kind)
}

// Served is a batch after the law: for each place the sample to be served, and how. A Miss is to be read exactly.
type Served struct {
	Index []sample.Index
	Kind  []policy.Kind
}

// NewLaw returns the law for a job. rule is what the user allows: Low, Class, or "" for nothing. high tells H-samples, which are no business of the L-cache, and which nodes
// may be; nil: there are none.
func NewLaw(rule string, keeper Keeper, high func(sample.Index) bool) *Law {
	if high == nil {
		high = func(sample.Index) bool { return false }
	}
	return &Law{keeper: keeper, high: high, rule: rule, uses: map[sample.Index]int{}}
}

// Batch decides about a batch of the job's order. own says that the request is the epoch's own: a batch of the order by its number, or a get whose position and
// indices are the order's. Other requests are served exactly, and the Keeper does not hear of them.
func (l *Law) Batch(asked []sample.Index, own bool) Served {
	s := Served{Index: make([]sample.Index, len(asked)), Kind: make([]policy.Kind, len(asked))}
	copy(s.Index, asked)
	if !own {
		return s
	}
	here := &l.here // asked for, or served
	here.reset(2 * len(asked))
	for _, id := range asked {
		here.add(id)
	}
	var may policy.May
	if f, ok := l.keeper.(policy.Foreseer); ok {
		f.Ahead(asked)
	}
	if l.rule != "" {
		may = func(other sample.Index) bool { return !here.has(other) && (l.rule == Class || !l.high(other)) }
	}
	for k, id := range asked {
		mayFor := may
		if l.high(id) {
			if mayFor = nil; l.rule != Class {
				continue
			}
		}
		s.Index[k], s.Kind[k] = l.keeper.Get(id, mayFor)
		if s.Kind[k] == policy.Substitute {
			here.add(s.Index[k])
			l.count(s.Index[k])
		}
	}
	return s
}

func (l *Law) count(id sample.Index) {
	l.substituted++
	if l.rule == Low { // each stands in once: millions of them need no books
		l.most = 1
		return
	}
	l.uses[id]++
	l.most = max(l.most, l.uses[id])
}

// Begin begins an epoch: no sample has stood in for others yet. The counters of the job go on.
func (l *Law) Begin() { clear(l.uses) }

// Counted returns how many samples were replaced, and how often one sample stood in for others in one epoch at most. Both only grow.
func (l *Law) Counted() (substituted int64, most int) { return l.substituted, l.most }

// few is a set of few samples that is used again and again: a table of open addressing, of which a place counts if its turn is the current one.
type few struct {
	id   []sample.Index
	turn []uint32
	now  uint32
	bits uint
}

// reset empties the set, and makes room for n samples.
func (f *few) reset(n int) {
	if f.now++; len(f.id) < 2*n || f.now == 0 {
		f.bits = uint(bits.Len(uint(2*n | 15)))
		f.id, f.turn, f.now = make([]sample.Index, 1<<f.bits), make([]uint32, 1<<f.bits), 1
	}
}

// place is where a sample is, or would be. Half of all places at least are empty.
func (f *few) place(id sample.Index) uint32 {
	k := (id * 0x9E3779B1) >> (32 - f.bits)
	for f.turn[k] == f.now && f.id[k] != id {
		k = (k + 1) & uint32(len(f.id)-1)
	}
	return k
}

func (f *few) has(id sample.Index) bool { return f.turn[f.place(id)] == f.now }

func (f *few) add(id sample.Index) {
	k := f.place(id)
	f.id[k], f.turn[k] = id, f.now
}

// What may stand in for a sample.
const (
	Low   = "low"   // another L-sample that was not served in this epoch
	Class = "class" // a near neighbour of the same class
)
