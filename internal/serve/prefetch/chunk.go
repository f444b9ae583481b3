package prefetch

import (
	"maps"
	"slices"

	"lcache/chunker"
	"lcache/internal/serve/staging"
	"lcache/metaindex"
	"lcache/sample"
)

// isFarBehind reports whether a position is in an earlier epoch, or more than leap chunks before another one.
func isFarBehind(s, t chunker.Position) bool {
	return s.Epoch < t.Epoch || s.Epoch == t.Epoch && s.Batch < t.Batch-leap
}

// isNear reports whether a later position is at most leap chunks ahead, counted from its epoch's first where that is the next one.
func isNear(s, t chunker.Position) bool {
	return t.Epoch == s.Epoch && t.Batch-s.Batch <= leap || t.Epoch == s.Epoch+1 && t.Batch <= leap
}

// A Coming is a chunk that a rank will ask for.
type Coming struct {
	metaindex.CM
	Next    chunker.Position        // of the rank, after this one
	Left    func(sample.Index) bool // reports, without locks, whether nothing else brings a sample ahead of the request; nil: nothing brings any of them
	Passing bool                    // a pass goes over the log for another job: what it brings to slots is kept for later chunks
	Near    bool                    // samples that lie near each other are asked for near each other: what lies around one is read with it
	Along   Along                   // has memory for what lies near a sample and is asked for later; nil: nothing is read along
}

// rankCursor is one rank's position, and the chunks listed for it.
type rankCursor struct {
	rank     chunker.JobRank
	work     *meters          // of the job
	next     chunker.Position // to be listed
	blocked  bool             // there is no chunk at next for now
	passing  bool             // Coming.Passing of the chunk that was listed last
	later    laterChunks
	lent     int64                     // bytes of the shares of ranks that read nothing ahead, for copies
	chunks   []*chunk                  // listed and not passed, in order
	done     map[chunker.Position]bool // chunks that need no listing: delivered, or brought by index
	strays   int                       // requests in a row for delivered chunks
	asked    chunker.Position
	bytes    int64                 // of chunks
	share    int64                 // how many bytes it may fill
	largest  int64                 // bytes of the largest chunk that was listed
	landed   int64                 // samples that came
	seen     int64                 // landed, when Advances was last asked
	pace     pace                  // of its consumer
	inFlight [sample.Origins]int64 // bytes on their way
	begun    [sample.Origins]int   // chunks[:begun] have nothing to be begun
}

// chunk is a batch that a rank will ask for.
type chunk struct {
	of         *rankCursor
	at         chunker.Position
	prefetches []*prefetch
	todo       [sample.Origins][]*prefetch // to be begun, in order
	left       int                         // prefetches that are not ready
	bytes      int64
	asked      bool
	stale      bool // to be listed once more before anything of it is begun
	near       bool // what lies around its samples is read with them: half of what is listed is behind it when it is begun
}

// holds reports whether a sample of the chunk is read already.
func (k *chunk) holds() bool {
	return slices.ContainsFunc(k.prefetches, func(pf *prefetch) bool { return pf.x != nil })
}

// enlist puts a prefetch on the list of reads to be begun of the chunk that needs it first.
func (pf *prefetch) enlist() {
	k := pf.neededBy()
	pf.on = k
	k.todo[pf.path] = append(k.todo[pf.path], pf)
	k.of.begun[pf.path] = 0
}

// bringForward puts a prefetch that waits to be begun on the list of the chunk that needs it first now.
func (pf *prefetch) bringForward() {
	if pf.on == pf.neededBy() {
		return
	}
	if pf.on != nil {
		pf.leaveList()
	}
	pf.enlist()
}

// bringForward does so with all prefetches of the chunk.
func (k *chunk) bringForward() {
	for _, pf := range k.prefetches {
		if pf.state == prefetchQueued {
			pf.bringForward()
		}
	}
}

// leaveList takes a prefetch off the list that it is on.
func (pf *prefetch) leaveList() {
	k := pf.on
	k.todo[pf.path] = slices.DeleteFunc(k.todo[pf.path], func(other *prefetch) bool { return other == pf })
	pf.on = nil
}

// neededBy returns the chunk that needs a prefetch first: one that a rank asks for now, else the first in order.
func (pf *prefetch) neededBy() (first *chunk) {
	for _, k := range pf.chunks {
		switch {
		case first == nil:
			first = k
		case k.isUrgent() != first.isUrgent():
			if k.isUrgent() {
				first = k
			}
		case k.at.Before(first.at):
			first = k
		}
	}
	return first
}

// isFor reports whether the chunk at a position wants the prefetch.
func (pf *prefetch) isFor(at chunker.Position) bool {
	return slices.ContainsFunc(pf.chunks, func(k *chunk) bool { return k.at == at })
}

// isUrgent reports whether the chunk's rank asks for it, or has asked for a later one.
func (k *chunk) isUrgent() bool { return !k.of.asked.Before(k.at) }

type prefetchState uint8

const (
	prefetchQueued  prefetchState = iota // in the todo list of the chunk that needs it first
	prefetchTaken                        // out of the list, to be begun at once
	prefetchReading                      // on its way
	prefetchReady                        // published
	prefetchInSlot                       // nothing was read: the sample lies in a slot, or is just leaving it
)

// prefetch is the read of one sample for one or more chunks.
type prefetch struct {
	index   sample.Index
	size    uint32
	state   prefetchState
	path    sample.Origin   // the path that it is brought on
	of      *rankCursor     // whose bytes in flight it counts among
	work    *meters         // of the job that it was begun for
	chunks  []*chunk        // that want it
	on      *chunk          // whose todo list it is in; nil: it is in none
	x       *staging.Extent // once published
	retried bool            // it was put back once because its bytes were not right
	near    bool            // what lies around it is read with it
	along   Along           // what is asked for later is read along with it, and kept there; nil: nothing is
	brought bool            // it was read along itself: no chunk wants it yet
}

// find returns where a chunk is in the list, or would be.
func (c *rankCursor) find(at chunker.Position) (i int, listed bool) {
	return slices.BinarySearchFunc(c.chunks, at, func(k *chunk, at chunker.Position) int { return k.at.Compare(at) })
}

// isDone notes that a chunk needs no listing. Chunks that only a jump leads to are forgotten.
func (c *rankCursor) isDone(at chunker.Position) {
	c.done[at] = true
	if len(c.done) > 4*leap {
		maps.DeleteFunc(c.done, func(s chunker.Position, _ bool) bool {
			return s.Epoch != c.asked.Epoch && s.Epoch != c.next.Epoch || s.Epoch == c.asked.Epoch && s.Batch < c.asked.Batch-leap
		})
	}
}
