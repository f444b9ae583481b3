package session

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"lcache/internal/importance/score"
)

// Join notes a rank that takes part. run names its training process: a new one counts its batches from 0. allHere says that all ranks are known to run on this machine.
func (s *Session) Join(rank int, run string, allHere bool) {
	s.mu.Lock()
	restarted, again := s.positions.join(s.o.Now(), rank, run, allHere)
	if again { // the run may begin with an epoch of which only the order is kept
		maps.DeleteFunc(s.orders.given, func(epoch int, _ bool) bool { return epoch < s.positions.epoch-1 })
	}
	s.mu.Unlock()
	if restarted {
		s.inbox.note(queued{restarted: uint16(rank)})
	}
	s.inbox.nudge()
}

// Observe queues an observation. It never waits. Only the papers' policies need it at once.
func (s *Session) Observe(o score.Observation) {
	s.inbox.observe(o, s.o.Config.Policy == "paper")
}

// EndEpoch notes that a rank has ended an epoch, and how training went. It never waits.
func (s *Session) EndEpoch(rank int, said score.Progress, unsent Unsent) {
	s.inbox.count(unsent)
	if unsent.Changed || unsent.Dimension > 0 || said.Off { // embeddings of another network: neighbours must be found again
		s.inbox.note(queued{replaced: true})
	}
	unstable := s.status.Load().SSize > 0
	s.mu.Lock()
	s.positions.ends(s.o.Now(), rank, said, unstable)
	s.mu.Unlock()
	s.inbox.nudge()
}

// work is the goroutine of the worker. It takes the queued items, and makes the boundary when decideBoundary says so.
func (w *worker) work() {
	defer close(w.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		step, stopped := w.next()
		items := w.inbox.take(stopped) // after the decision: a rank that has left the epoch sent its observations before
		w.doAll(items, stopped)
		if stopped {
			return
		}
		if step.to >= 0 {
			w.advance(step.to)
			continue
		}
		if len(items) > 0 {
			w.report()
		}
		wait := time.Hour
		if !step.until.IsZero() {
			wait = time.Until(step.until)
		}
		timer.Reset(w.publishAgain(wait))
		select {
		case <-w.inbox.wake:
		case <-timer.C:
		}
	}
}

// next decides about the boundary.
func (w *worker) next() (step boundaryStep, stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return decideBoundary(w.o.Now(), w.positions.view(w.patience())), w.orders.stopped
}

// patience is how long the ranks inside an epoch have after the first one has left it: longer where they look at unstable samples again. Session.mu is held.
func (w *worker) patience() time.Duration {
	late := w.o.LateEpoch
	if w.status.Load().SSize == 0 {
		return late
	}
	return lookTime(late, w.positions.lookTook, w.o.Timeout)
}

// lookTime bounds a look at unstable samples by the time that the last one took (ImPACT §III-B), and by the timeout of a request, else waiting ranks time out.
func lookTime(late, took, request time.Duration) time.Duration {
	return max(late, min(max(6*late, 2*took), request*5/6))
}

// doAll does what was queued, and gives back its memory. After Stop everything is dropped.
func (w *worker) doAll(items []queued, stopped bool) {
	done := int64(0)
	w.stateMu.Lock()
	for _, q := range items {
		if stopped || !w.do(q) {
			done += q.bytes
		}
	}
	if stopped {
		done += w.earlyBytes
		w.early, w.earlyBytes = nil, 0
	}
	w.stateMu.Unlock()
	w.o.Observations.Give(done)
}

// do does one work item. It reports whether the memory of it is kept. Session.stateMu is held.
func (w *worker) do(q queued) (kept bool) {
	switch o := q.seen; {
	case q.replaced:
		w.o.High.ForgetNodes()
	case o == nil:
		w.state.Restarted(q.restarted)
	case int64(o.Epoch) != int64(w.state.Epoch())+1:
		w.take(*o)
	case w.earlyBytes+q.bytes <= mostQueued: // of a rank that is ahead: the epoch before is not over for the others
		w.early, w.earlyBytes = append(w.early, *o), w.earlyBytes+q.bytes
		return true
	default:
		w.inbox.count(Unsent{Dropped: 1})
	}
	return false
}

// take gives the state an observation. Session.stateMu is held.
func (w *worker) take(o score.Observation) {
	w.undelivered += w.o.High.Undelivered(o.Index)
	w.looked = w.looked || o.Kind == score.Reevaluated && int64(o.Epoch) == int64(w.state.Epoch()) // a late one was for the boundary before
	w.state.Observe(o)
}

// advance makes the boundary before an epoch.
func (w *worker) advance(to int) {
	w.warnAbsent(to)
	w.mu.Lock()
	w.orders.file.version++
	progress := w.positions.progress()
	w.mu.Unlock()
	progress.Epochs = w.o.Epochs
	w.o.High.EndEpoch()
	looked, err := w.advanceState(to, progress)
	if err == nil {
		w.report() // first, so that a client with the new order finds the values that it was drawn from
		w.beginMemory()
		w.publish()
	} else {
		w.o.Log.Error("the next epoch's order can't be drawn", "name", w.o.Config.Name, "epoch", to, "err", err)
		err = fmt.Errorf("the order of epoch %d can't be drawn: %w", to, err)
	}
	w.mu.Lock()
	if err == nil {
		w.positions.made(w.o.Now(), to, w.state.Epoch(), looked)
	} else {
		w.positions.failed(w.o.Now(), looked)
	}
	if !w.orders.stopped {
		w.orders.err = err
	}
	w.orders.wakeWaiters()
	w.mu.Unlock()
	if err == nil {
		w.save()
	}
}

// advanceState makes the boundary in the state, and gives it the observations of the epoch that begins. looked reports whether ranks looked at unstable samples before.
func (w *worker) advanceState(to int, progress score.Progress) (looked bool, err error) {
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	if looked = w.looked; !looked && len(w.state.Unstable()) > 0 {
		w.missed++
	}
	w.looked = false
	err = w.state.Advance(to, progress)
	for _, o := range w.early {
		w.take(o)
	}
	w.o.Observations.Give(w.earlyBytes)
	w.early, w.earlyBytes = nil, 0
	return looked, err
}

// warnAbsent warns once, at the first boundary that some ranks have not come to, unless all ranks run here: they may train on other machines.
func (w *worker) warnAbsent(to int) {
	w.mu.Lock()
	absent := w.positions.absent(to)
	w.mu.Unlock()
	if len(absent) > 0 {
		w.o.Log.Warn("the next epoch is drawn without ranks that have not ended this one: job.importance needs all ranks on one machine", "name", w.o.Config.Name, "epoch", to, "world", w.o.Config.WorldSize, "ranks", ranges(absent))
	}
}

// ranges writes ascending numbers as text, like 0-3,7.
func ranges(numbers []int) string {
	var b strings.Builder
	for first := 0; first < len(numbers); {
		last := first
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, numbers[first])
		if last > first {
			fmt.Fprint(&b, "-", numbers[last])
		}
		first = last + 1
	}
	return b.String()
}
