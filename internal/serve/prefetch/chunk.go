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

// isNear reports whether t is at most leap chunks after s. In the next epoch it counts from the first chunk.
func isNear(s, t chunker.Position) bool {
	return t.Epoch == s.Epoch && t.Batch-s.Batch <= leap || t.Epoch == s.Epoch+1 && t.Batch <= leap
}

// An Upcoming is a chunk that a rank will request.
type Upcoming struct {
	metaindex.CM
	Next          chunker.Position        // the rank's next position
	Left          func(sample.Index) bool // reports whether the Prefetcher must load a sample, because no producer loads it before the request; takes no locks; nil: all samples
	Scanning      bool                    // a scan of the log is under way for another job: later chunks copy samples from its slots
	Near          bool                    // samples that are near each other in the log are requested soon after each other: read all listed samples of a piece together
	Opportunistic OpportunisticMemory     // memory for opportunistic reads; nil: no opportunistic reads
}

// rankCursor is one rank's position, and the chunks listed for it.
type rankCursor struct {
	rank     chunker.JobRank
	work     *meters          // of the job
	next     chunker.Position // the next position to list
	blocked  bool             // Options.Chunk had no chunk at next
	scanning bool             // Upcoming.Scanning of the last listed chunk
	later    laterChunks
	lent     int64                     // shares of ranks that read nothing ahead, in bytes; this rank's copies may use them
	chunks   []*chunk                  // listed and not passed, in order
	done     map[chunker.Position]bool // chunks that need no listing: delivered, or read by index
	strays   int                       // consecutive requests for delivered chunks
	asked    chunker.Position
	bytes    int64                 // of all chunks
	share    int64                 // bytes that the rank may fill
	largest  int64                 // bytes of the largest chunk listed so far
	landed   int64                 // number of samples read
	seen     int64                 // value of landed at the last call of Advances
	pace     pace                  // of its client
	inFlight [sample.Origins]int64 // bytes in flight
	begun    [sample.Origins]int   // chunks[:begun] have no read left to begin
}

// chunk is a batch that a rank will request.
type chunk struct {
	of         *rankCursor
	at         chunker.Position
	prefetches []*prefetch
	todo       [sample.Origins][]*prefetch // prefetches to begin, in order
	todoBytes  [sample.Origins]int64       // of their samples
	left       int                         // prefetches that are not ready
	bytes      int64
	asked      bool
	stale      bool // must be listed again before any of its reads begins
	near       bool // its pieces are read whole, so nextTodo delays its reads until more chunks are listed
}

// holds reports whether a sample of the chunk has been read.
func (k *chunk) holds() bool {
	return slices.ContainsFunc(k.prefetches, func(pf *prefetch) bool { return pf.x != nil })
}

// enlist adds a prefetch to the todo list of the chunk that needs it first.
func (pf *prefetch) enlist() {
	k := pf.neededBy()
	pf.on = k
	k.todo[pf.path] = append(k.todo[pf.path], pf)
	k.todoBytes[pf.path] += int64(pf.size)
	k.of.begun[pf.path] = 0
}

// bringForward moves a queued prefetch to the todo list of the chunk that needs it first now.
func (pf *prefetch) bringForward() {
	if pf.on == pf.neededBy() {
		return
	}
	if pf.on != nil {
		pf.leaveList()
	}
	pf.enlist()
}

// bringForward moves all queued prefetches of the chunk.
func (k *chunk) bringForward() {
	for _, pf := range k.prefetches {
		if pf.state == prefetchQueued {
			pf.bringForward()
		}
	}
}

// leaveList takes a prefetch off its todo list.
func (pf *prefetch) leaveList() {
	k := pf.on
	k.todo[pf.path] = slices.DeleteFunc(k.todo[pf.path], func(other *prefetch) bool { return other == pf })
	k.todoBytes[pf.path] -= int64(pf.size)
	pf.on = nil
}

// neededBy returns the chunk that needs a prefetch first: an urgent chunk, or else the first in order.
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

// isUrgent reports whether the chunk's rank has requested it or a later chunk.
func (k *chunk) isUrgent() bool { return !k.of.asked.Before(k.at) }

type prefetchState uint8

const (
	prefetchQueued  prefetchState = iota // in the todo list of the chunk that needs it first
	prefetchTaken                        // off the list, to begin at once
	prefetchReading                      // in flight
	prefetchReady                        // published
	prefetchInSlot                       // not read: the sample is in a slot, or is just leaving it
)

// prefetch is the read of one sample for one or more chunks.
type prefetch struct {
	index         sample.Index
	size          uint32
	state         prefetchState
	path          sample.Origin       // the path that reads it
	of            *rankCursor         // the rank whose inFlight counts it
	work          *meters             // of the job that it was begun for
	chunks        []*chunk            // the chunks that want it
	on            *chunk              // the chunk whose todo list has it; nil: none
	x             *staging.Extent     // once published
	asked         int                 // peers that do not have it
	peer          string              // of which it is due; "": of none
	retried       bool                // it was put back once after a checksum mismatch
	near          bool                // all listed samples of its piece are read together
	memory        OpportunisticMemory // where opportunistic reads next to it keep their samples; nil: no opportunistic reads
	opportunistic bool                // it is itself an opportunistic read: no chunk wants it yet
}

// find returns the position of a chunk in the list, or where to insert it.
func (c *rankCursor) find(at chunker.Position) (i int, listed bool) {
	return slices.BinarySearchFunc(c.chunks, at, func(k *chunk, at chunker.Position) int { return k.at.Compare(at) })
}

// isDone notes that a chunk needs no listing. It forgets chunks that only a jump could lead to.
func (c *rankCursor) isDone(at chunker.Position) {
	c.done[at] = true
	if len(c.done) > 4*leap {
		maps.DeleteFunc(c.done, func(s chunker.Position, _ bool) bool {
			return s.Epoch != c.asked.Epoch && s.Epoch != c.next.Epoch || s.Epoch == c.asked.Epoch && s.Batch < c.asked.Batch-leap
		})
	}
}
