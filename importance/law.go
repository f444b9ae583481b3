package importance

import "lcache/sample"

// Law is the law of substitution for one job: when may a sample be served in place of the one that the job's order has? It knows batches, and what is counted;
// which samples could stand in is the business of a [Keeper]. The four rules:
//
//   - Off unless the user allowed it. Never for a request that is not the epoch's own, as those of a validation job, and never for an H-sample.
//   - What is served is one whole sample: its bytes, index, label and name. So the caller goes on with the served index alone.
//   - A substitute is what the Keeper has: for [Low] a loaded L-sample that the job was not served in this epoch ([LCache]), for [Class] a node that lists the
//     sample as its neighbour, of the same class by the labels of now ([Homophily]).
//   - Never the same sample twice in a batch. A substitute is refused if the batch has asked for it anywhere, or has it already. Then the sample is read exactly.
//
// A sample that can't be read is an error, and no reason for a substitute: the law is asked before anything is read.
type Law struct {
	keeper Keeper
	high   func(sample.Index) bool
	on     bool

	uses        map[sample.Index]int // of each substitute in this epoch
	substituted int64
	most        int
}

// Keeper has the samples that may stand in for others. [LCache] and [Homophily] are Keepers, and so is each [Policy].
type Keeper interface {
	// Get says which sample serves a request for id: itself, a substitute that may allows, or none.
	Get(id sample.Index, may May) (served sample.Index, k Kind)
}

// Served is a batch after the law: for each place the sample to be served, and how. A Miss is to be read exactly.
type Served struct {
	Index []sample.Index
	Kind  []Kind
}

// NewLaw returns the law for a job. rule is what the user allows: Low, Class, or "" for nothing. high tells H-samples, which are no business of the L-cache;
// nil: there are none.
func NewLaw(rule string, keeper Keeper, high func(sample.Index) bool) *Law {
	if high == nil {
		high = func(sample.Index) bool { return false }
	}
	return &Law{keeper: keeper, high: high, on: rule != "", uses: map[sample.Index]int{}}
}

// Batch decides about a batch of the job's order. own says that the request is the epoch's own: a batch of the order by its number, or a get whose position and
// indices are the order's. Other requests are served exactly, and the Keeper does not hear of them.
func (l *Law) Batch(asked []sample.Index, own bool) Served {
	s := Served{Index: make([]sample.Index, len(asked)), Kind: make([]Kind, len(asked))}
	copy(s.Index, asked)
	if !own {
		return s
	}
	here := make(map[sample.Index]bool, 2*len(asked)) // asked for, or served
	for _, id := range asked {
		here[id] = true
	}
	var may May
	if l.on {
		may = func(other sample.Index) bool { return !here[other] && !l.high(other) }
	}
	for k, id := range asked {
		if l.high(id) {
			continue
		}
		s.Index[k], s.Kind[k] = l.keeper.Get(id, may)
		if s.Kind[k] == Substitute {
			here[s.Index[k]] = true
			l.count(s.Index[k])
		}
	}
	return s
}

func (l *Law) count(id sample.Index) {
	l.substituted++
	l.uses[id]++
	l.most = max(l.most, l.uses[id])
}

// Begin begins an epoch: no sample has stood in for others yet. The counters of the job go on.
func (l *Law) Begin() { clear(l.uses) }

// Counted returns how many samples were replaced, and how often one sample stood in for others in one epoch at most. Both only grow.
func (l *Law) Counted() (substituted int64, most int) { return l.substituted, l.most }
