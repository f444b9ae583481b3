package substitute

import (
	"math/bits"

	"lcache/internal/importance/policy"
	"lcache/sample"
)

// Rules are the rules of substitution for one job: when may lcache serve another sample than the one in the job's
// order? They know batches and counters; a [Keeper] knows the candidates. The rules:
//
//   - Substitution is off unless the user allows it. It never applies to a request that is not part of the epoch,
//     such as one of a validation job. It never applies to an H-sample, even if that sample is not in memory.
//   - A substitute is served as a whole: its bytes, index, label and name. So the caller only needs the served
//     index.
//   - The Keeper proposes substitutes. For [Low] it is a loaded L-sample that was not yet served to the job in
//     this epoch ([LCache]). For [Class] it is a node that lists the sample as its neighbour and has the same class
//     by the current labels ([policy.Homophily]).
//   - A substitute never makes a batch contain a sample twice. It is refused if the batch requests it, or contains
//     it already. Then the original sample is read.
//
// A sample that can't be read is an error, not a reason for a substitute: the rules are applied before any sample is read.
type Rules struct {
	keeper Keeper
	high   func(sample.Index) bool
	rule   string // Low, Class, or "": nothing is allowed
	here   few

	uses        map[sample.Index]int // of each substitute in this epoch, for the rule Class
	substituted int64
	most        int
}

// A Keeper knows the samples that may serve as substitutes. [LCache], [policy.Homophily] and each [policy.Policy] are
// Keepers.
type Keeper interface {
	// Get returns the sample that serves a request for id: id itself, a substitute that may allows, or none.
	Get(id sample.Index, may policy.May) (served sample.Index, k policy.Kind)
}

// Served is a batch after substitution: for each position, the sample to serve and its kind. A Miss must be read as
// requested.
type Served struct {
	Index []sample.Index
	Kind  []policy.Kind
}

// NewRules returns the rules for a job. rule is the substitution that the user allows: Low, Class, or "" for none. high reports
// H-samples, which the L-cache never holds and which may be nodes. If high is nil, no sample is an H-sample.
func NewRules(rule string, keeper Keeper, high func(sample.Index) bool) *Rules {
	if high == nil {
		high = func(sample.Index) bool { return false }
	}
	return &Rules{keeper: keeper, high: high, rule: rule, uses: map[sample.Index]int{}}
}

// Batch applies the rules to a batch. own says that the request is part of the epoch: a batch of the order by its
// number, or a get with the order's position and indices. Other requests are served as they are, and the Keeper does
// not see them.
func (l *Rules) Batch(asked []sample.Index, own bool) Served {
	s := Served{Index: make([]sample.Index, len(asked)), Kind: make([]policy.Kind, len(asked))}
	copy(s.Index, asked)
	if !own {
		return s
	}
	here := &l.here // requested or served samples
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

func (l *Rules) count(id sample.Index) {
	l.substituted++
	if l.rule == Low { // a sample is a substitute at most once; uses would have millions of entries
		l.most = 1
		return
	}
	l.uses[id]++
	l.most = max(l.most, l.uses[id])
}

// Begin starts an epoch with no uses. The job's counters continue.
func (l *Rules) Begin() { clear(l.uses) }

// Counted returns the number of substituted samples, and the maximum number of uses of one substitute in an epoch.
// Neither ever decreases.
func (l *Rules) Counted() (substituted int64, most int) { return l.substituted, l.most }

// few is a small set of samples that is reused: a hash table with open addressing. An entry is valid if its turn is
// the current one.
type few struct {
	id   []sample.Index
	turn []uint32
	now  uint32
	bits uint
}

// reset empties the set and makes room for n samples.
func (f *few) reset(n int) {
	if f.now++; len(f.id) < 2*n || f.now == 0 {
		f.bits = uint(bits.Len(uint(2*n | 15)))
		f.id, f.turn, f.now = make([]sample.Index, 1<<f.bits), make([]uint32, 1<<f.bits), 1
	}
}

// place returns the table position of a sample, or the position where it would be inserted. At least half of all
// entries are empty.
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

// Kinds of substitutes that a user may allow.
const (
	Low   = "low"   // another L-sample that was not served in this epoch
	Class = "class" // a near neighbour of the same class
)
