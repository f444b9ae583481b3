package session

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"lcache/internal/importance/score"
)

// Join notes a rank that takes part. run identifies its training process, because a new process counts its batches
// from 0. allLocal says that all ranks run on this machine, as far as the client knows.
func (s *Session) Join(rank int, run string, allLocal bool) {
	s.mu.Lock()
	restarted, again := s.positions.join(s.o.Now(), rank, run, allLocal)
	if again { // the run may begin with an epoch that only has its order left
		maps.DeleteFunc(s.orders.given, func(epoch int, _ bool) bool { return epoch < s.positions.epoch-1 })
	}
	s.mu.Unlock()
	if restarted {
		s.inbox.note(queued{restarted: uint16(rank)})
	}
	s.inbox.nudge()
}

// Observe queues an observation. It never waits. The worker is woken at once only if the memory policy is the
// paper's.
func (s *Session) Observe(o score.Observation) {
	s.inbox.observe(o, s.o.Config.Policy == "paper")
}

// EndEpoch notes that a rank has ended an epoch, with its report on the training. It never waits.
func (s *Session) EndEpoch(rank int, report score.Progress, unsent Unsent) {
	s.inbox.count(unsent)
	if unsent.Changed || unsent.Dimension > 0 || report.Off { // the embeddings may come from another network, so the nodes must be found again
		s.inbox.note(queued{replaced: true})
	}
	unstable := s.status.Load().SSize > 0
	s.mu.Lock()
	s.positions.ends(s.o.Now(), rank, report, unstable)
	s.mu.Unlock()
	s.inbox.nudge()
}

// work is the worker's goroutine. It handles queued items, and makes the boundary when decideBoundary says so.
func (w *worker) work() {
	defer close(w.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		step, stopped := w.next()
		items := w.inbox.take(stopped) // after the decision, because a rank sends its observations before it leaves the epoch
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

// patience returns how long the ranks inside an epoch have after the first rank has left it. They have longer while
// they re-evaluate unstable samples. Session.mu is held.
func (w *worker) patience() time.Duration {
	late := w.o.LateEpoch
	if w.status.Load().SSize == 0 {
		return late
	}
	return lookTime(late, w.positions.lookTook, w.o.Timeout)
}

// lookTime limits the time for re-evaluating unstable samples. It depends on the duration of the last one (ImPACT
// §III-B), and stays below a request's timeout, so that waiting ranks do not time out.
func lookTime(late, took, request time.Duration) time.Duration {
	return max(late, min(max(6*late, 2*took), request*5/6))
}

// doAll handles queued items and releases their memory. After Stop, it drops all items.
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

// do handles one work item. It reports whether the item's memory stays in use. Session.stateMu is held.
func (w *worker) do(q queued) (kept bool) {
	switch o := q.seen; {
	case q.replaced:
		w.o.High.ForgetNodes()
	case o == nil:
		w.state.Restarted(q.restarted)
	case int64(o.Epoch) != int64(w.state.Epoch())+1:
		w.take(*o)
	case w.earlyBytes+q.bytes <= mostQueued: // the rank is ahead: other ranks are still inside the epoch before
		w.early, w.earlyBytes = append(w.early, *o), w.earlyBytes+q.bytes
		return true
	default:
		w.inbox.count(Unsent{Dropped: 1})
	}
	return false
}

// take adds an observation to the state. Session.stateMu is held.
func (w *worker) take(o score.Observation) {
	w.undelivered += w.o.High.Undelivered(o.Index)
	w.looked = w.looked || o.Kind == score.Reevaluated && int64(o.Epoch) == int64(w.state.Epoch()) // a late re-evaluation was meant for the boundary before
	w.state.Observe(o)
}

// advance makes the boundary before epoch to.
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
		w.report() // before publishing: a client that sees the new order must find the values it was drawn from
		w.beginMemory()
		w.publish()
	} else {
		w.o.Log.Error("cannot draw the next epoch's order", "name", w.o.Config.Name, "epoch", to, "err", err)
		err = fmt.Errorf("draw the order of epoch %d: %w", to, err)
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

// advanceState makes the boundary in the state, and adds the queued observations of the new epoch. looked reports
// whether ranks re-evaluated unstable samples before.
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

// warnAbsent warns about ranks that have not reached the boundary, because they may train on other machines. It warns
// once, and never if all ranks run here.
func (w *worker) warnAbsent(to int) {
	w.mu.Lock()
	absent := w.positions.absent(to)
	w.mu.Unlock()
	if len(absent) > 0 {
		w.o.Log.Warn("some ranks have not ended this epoch, and the next one is drawn without them: job.importance needs all ranks on one machine", "name", w.o.Config.Name, "epoch", to, "world", w.o.Config.WorldSize, "ranks", ranges(absent))
	}
}

// ranges formats ascending numbers as text, such as 0-3,7.
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
