package score

import (
	"fmt"
	"io"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Scorer computes values from observations: one number per sample, at least 0; a greater one matters more.
type Scorer interface {
	// Observe takes one batch. It skips and counts invalid parts.
	Observe(o Observation) Report
	// Values copies all values to dst, and returns dst. If dst is too short, Values allocates another one. A sample
	// without an observation gets the mean of the others.
	Values(dst []float64) []float64
	// EndEpoch ends an epoch, with the training's progress.
	EndEpoch(p Progress)
	// Activity returns how much of the last epoch was observed.
	Activity() Activity
	// Save writes the state, and Restore reads it into a scorer with the same parameters. After a failed Restore, the
	// scorer must not be used.
	Save(w io.Writer) error
	Restore(r io.Reader) error
	// Share sets the number of ranks that observe. With several, a sample's value comes from the newest batch, whatever
	// the order in which observations arrive. Call Share before the first observation.
	Share(ranks int) error
	// Restarted notes that a rank has a new training process, whose batches count from 0 again.
	Restarted(rank uint16)
	// Close frees the memory.
	Close()
}

// Progress is the trainer's report about an epoch. A nil number means not reported.
type Progress struct {
	Epoch    int
	Epochs   int // of the whole job; 0: unknown
	Accuracy *float64
	Loss     *float64
	Off      bool // the trainer has stopped observing
}

// A State is the phase of a method.
type State string

// States of a method.
const (
	Warmup State = "warmup" // plain permutations, until the unstable samples are known
	Active State = "active"
	Idle   State = "idle" // two epochs without an observation, or the trainer has stopped observing: plain permutations until observations return
)

// Activity describes the observations so far.
type Activity struct {
	State         State
	ObservedShare float64 // of all samples, in the last finished epoch
	LastObserved  int     // the newest epoch with an observation; -1: none
	Silent        int     // number of epochs without an observation since the last one with one
}

// values is the common state of all scorers: for each sample a value and the epoch of its observation. It takes 10
// bytes per sample, or 14 if several ranks observe.
type values struct {
	v        []float64 // for samples without an observation: filled in by fill
	stamp    []uint16  // 0: not observed; otherwise the folded epoch of the last observation
	epoch    int       // the trained epoch
	turn     []uint32  // with several ranks: the turn of the observation that the value comes from; nil: one rank observes, in the order of its batches
	seen     int
	observed int // samples observed in this epoch
	activity Activity
	now      moment // the observation that is being taken
}

// moment is an observation as set uses it. Within an epoch, a newer observation has a greater turn.
type moment struct {
	epoch   int
	mark    uint16 // the folded epoch
	turn    uint32
	current bool // of the current epoch, not of the one before
}

// Bits of a turn, from the top: reevaluated, batch, rank. Batches and ranks beyond the maximum count as the maximum.
const (
	turnAgain = 1 << 31
	turnRank  = 10
	turnBatch = 21
)

func newValues(n int) (values, error) {
	if n < 1 || n > sample.MaxSamples {
		return values{}, fmt.Errorf("importance of %d samples: give 1 to %d samples", n, uint32(sample.MaxSamples))
	}
	v, err := offheap.MakeDense[float64](n)
	if err != nil {
		return values{}, err
	}
	stamp, err := offheap.MakeDense[uint16](n)
	if err != nil {
		offheap.Free(v)
		return values{}, err
	}
	return values{v: v, stamp: stamp, activity: Activity{State: Active, LastObserved: -1}}, nil
}

// Share sets the number of ranks that observe.
func (s *values) Share(ranks int) (err error) {
	if ranks > 1 && s.turn == nil {
		s.turn, err = offheap.MakeDense[uint32](len(s.v))
	}
	return err
}

// Close frees the memory.
func (s *values) Close() {
	offheap.Free(s.v)
	offheap.Free(s.stamp)
	offheap.Free(s.turn)
	s.v, s.stamp, s.turn = nil, nil, nil
}

// fold maps an epoch to 16 bits other than 0.
func fold(epoch int) uint16 { return uint16(epoch%65535) + 1 }

// stale reports whether an observation's epoch is neither the current one nor the one before. The last batches of the
// epoch before may arrive late.
func (s *values) stale(epoch uint32) bool {
	return int64(epoch) > int64(s.epoch) || int64(epoch)+1 < int64(s.epoch)
}

// begin prepares set for an observation, which must not be stale.
func (s *values) begin(o *Observation) {
	s.now = moment{epoch: int(o.Epoch), mark: fold(int(o.Epoch)), current: int(o.Epoch) == s.epoch}
	s.now.turn = min(o.Batch, 1<<turnBatch-1)<<turnRank | min(uint32(o.Rank), 1<<turnRank-1)
	if o.Kind == Reevaluated {
		s.now.turn |= turnAgain
	}
}

// overtaken reports whether sample i has the value of a newer observation: one of a newer epoch or, if several ranks
// observe, one of a later batch. If two ranks have the same batch number, the greater rank wins (SHADE §4.3), so that
// values do not depend on the order of arrival.
func (s *values) overtaken(i sample.Index) bool {
	if !s.now.current && s.stamp[i] == fold(s.epoch) {
		return true
	}
	return s.turn != nil && s.stamp[i] == s.now.mark && s.turn[i] > s.now.turn
}

// set records the value of sample i in the current observation. A negative value counts as 0.
func (s *values) set(i sample.Index, v float64) {
	if s.overtaken(i) {
		return
	}
	if !(v > 0) {
		v = 0 // also replaces -0, whose bits sort elsewhere
	}
	if before := s.stamp[i]; before != s.now.mark {
		if before == 0 {
			s.seen++
		}
		if s.now.current {
			s.observed++
		}
	}
	s.v[i], s.stamp[i] = v, s.now.mark
	s.activity.LastObserved = max(s.activity.LastObserved, s.now.epoch)
	if s.turn != nil {
		s.turn[i] = s.now.turn
	}
}

// Restarted drops the batch numbers of a rank's values.
func (s *values) Restarted(rank uint16) {
	for i, turn := range s.turn {
		if turn&(1<<turnRank-1) == uint32(rank) {
			s.turn[i] = 0
		}
	}
}

// fill gives samples without an observation the mean of the others, so that v is complete.
func (s *values) fill() {
	if s.seen == len(s.v) {
		return
	}
	sum := 0.0
	for i, v := range s.v {
		if s.stamp[i] != 0 {
			sum += v
		}
	}
	mean := 0.0
	if s.seen > 0 {
		mean = sum / float64(s.seen)
	}
	for i := range s.v {
		if s.stamp[i] == 0 {
			s.v[i] = mean
		}
	}
}

// Values copies all values to dst; see [Scorer].
func (s *values) Values(dst []float64) []float64 {
	s.fill()
	return append(dst[:0], s.v...)
}

// Value returns the value of sample i, and whether it was ever observed.
func (s *values) Value(i sample.Index) (v float64, seen bool) {
	if int(i) >= len(s.v) || s.stamp[i] == 0 {
		return 0, false
	}
	return s.v[i], true
}

// Activity returns how much of the last epoch was observed.
func (s *values) Activity() Activity { return s.activity }

// idleAfter is the number of epochs without an observation after which a method becomes idle.
const idleAfter = 2

// end ends the epoch. Without observations the method becomes idle; the next observation makes it active again.
func (s *values) end(p Progress) {
	s.activity.ObservedShare = float64(s.observed) / float64(len(s.v))
	switch {
	case p.Off:
		s.activity.Silent = max(s.activity.Silent, idleAfter)
	case s.observed > 0:
		s.activity.Silent = 0
	default:
		s.activity.Silent++
	}
	s.activity.State = Active
	if s.activity.Silent >= idleAfter {
		s.activity.State = Idle
	}
	s.epoch, s.observed = p.Epoch+1, 0
}
