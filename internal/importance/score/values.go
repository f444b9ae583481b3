package score

import (
	"fmt"
	"io"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Scorer makes values of observations: one number a sample, at least 0; the greater, the more it matters.
type Scorer interface {
	// Observe takes one batch. What is wrong in it is left out and counted; the rest counts.
	Observe(o Observation) Report
	// Values copies all values to dst, which is made if it is too short, and returns it. A sample that was never observed has the mean of the others.
	Values(dst []float64) []float64
	// EndEpoch says that an epoch has ended, and how training went.
	EndEpoch(p Progress)
	// Activity says how much of the last epoch was observed.
	Activity() Activity
	// Save writes what the values are made of, and Restore reads that into a scorer with the same parameters. After an error of Restore the scorer is of no use.
	Save(w io.Writer) error
	Restore(r io.Reader) error
	// Share says how many ranks observe: then the newest batch decides about a sample, not the order in which ranks are heard. Call it before the first observation.
	Share(ranks int) error
	// Restarted says that a rank has a new training process, which counts its batches from 0.
	Restarted(rank uint16)
	// Close gives the memory back.
	Close()
}

// Progress is what the trainer reports of an epoch. A nil number was not reported.
type Progress struct {
	Epoch    int
	Epochs   int // of the whole job; 0: unknown
	Accuracy *float64
	Loss     *float64
	Off      bool // the trainer observes no more
}

// A State is how far a method has come.
type State string

// States of a method.
const (
	Warmup State = "warmup" // plain permutations, until the unstable samples are known
	Active State = "active"
	Idle   State = "idle" // two epochs without an observation, or the trainer says that none come: plain permutations until reports return
)

// Activity is what is known of the observations.
type Activity struct {
	State         State
	ObservedShare float64 // of all samples, in the last epoch that ended
	LastObserved  int     // the newest epoch that an observation was of; -1: none
	Silent        int     // epochs that ended without an observation, one after the other
}

// values are the numbers that every scorer keeps: a value and the epoch of its observation, 10 bytes a sample, 14 where several
// ranks observe.
type values struct {
	v        []float64 // of samples never seen: what fill wrote
	stamp    []uint16  // 0: never seen; else the epoch of the last observation, folded
	epoch    int       // that is being trained
	turn     []uint32  // of several ranks: which observation of its epoch the value is of; nil: one rank observes, in the order of its batches
	seen     int
	observed int // samples seen in this epoch
	activity Activity
	now      moment // of the observation that is taken
}

// moment is what set needs of an observation. A newer observation of an epoch has a greater turn.
type moment struct {
	epoch   int
	mark    uint16 // the folded epoch
	turn    uint32
	current bool // of the current epoch, not the one before
}

// Bits of a turn, from the top: of samples that were looked at again, the batch, the rank. Batches and ranks beyond count as the last ones.
const (
	turnAgain = 1 << 31
	turnRank  = 10
	turnBatch = 21
)

func newValues(n int) (values, error) {
	if n < 1 || n > sample.MaxSamples {
		return values{}, fmt.Errorf("importance of %d samples: there are from 1 to %d", n, uint32(sample.MaxSamples))
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

// Share says how many ranks observe.
func (s *values) Share(ranks int) (err error) {
	if ranks > 1 && s.turn == nil {
		s.turn, err = offheap.MakeDense[uint32](len(s.v))
	}
	return err
}

// Close gives the memory back.
func (s *values) Close() {
	offheap.Free(s.v)
	offheap.Free(s.stamp)
	offheap.Free(s.turn)
	s.v, s.stamp, s.turn = nil, nil, nil
}

// fold makes an epoch two bytes that are not 0.
func fold(epoch int) uint16 { return uint16(epoch%65535) + 1 }

// stale reports whether an observation's epoch is neither the current one nor the one before, whose last batches may lag.
func (s *values) stale(epoch uint32) bool {
	return int64(epoch) > int64(s.epoch) || int64(epoch)+1 < int64(s.epoch)
}

// begin begins an observation that is not stale: set needs to know which one it is.
func (s *values) begin(o *Observation) {
	s.now = moment{epoch: int(o.Epoch), mark: fold(int(o.Epoch)), current: int(o.Epoch) == s.epoch}
	s.now.turn = min(o.Batch, 1<<turnBatch-1)<<turnRank | min(uint32(o.Rank), 1<<turnRank-1)
	if o.Kind == Reevaluated {
		s.now.turn |= turnAgain
	}
}

// overtaken reports whether sample i has a value of a newer observation: of a newer epoch or, where several ranks observe, of a later batch. Of the same batch
// of two ranks that of the greater rank counts (SHADE §4.3; so the values do not depend on which rank is heard first).
func (s *values) overtaken(i sample.Index) bool {
	if !s.now.current && s.stamp[i] == fold(s.epoch) {
		return true
	}
	return s.turn != nil && s.stamp[i] == s.now.mark && s.turn[i] > s.now.turn
}

// set notes the value of sample i in the observation that was begun. A negative value is 0.
func (s *values) set(i sample.Index, v float64) {
	if s.overtaken(i) {
		return
	}
	if !(v > 0) {
		v = 0 // also for -0, whose bits sort elsewhere
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

// Restarted forgets which batches a rank's values are of.
func (s *values) Restarted(rank uint16) {
	for i, turn := range s.turn {
		if turn&(1<<turnRank-1) == uint32(rank) {
			s.turn[i] = 0
		}
	}
}

// fill gives samples that were never seen the mean of the others, so that v is complete.
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

// Value is the value of sample i, and whether it was ever observed.
func (s *values) Value(i sample.Index) (v float64, seen bool) {
	if int(i) >= len(s.v) || s.stamp[i] == 0 {
		return 0, false
	}
	return s.v[i], true
}

// Activity says how much of the last epoch was observed.
func (s *values) Activity() Activity { return s.activity }

// idleAfter is how many silent epochs make a method idle.
const idleAfter = 2

// end closes the epoch. Silence makes the method idle; the first observation after that makes it active.
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
