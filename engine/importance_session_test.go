package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/testenv"
)

// taker is a job with importance whose clients come and go, as seen by a test.
type taker struct {
	losing
	token string
}

// join connects a client of a job.
func (k *taker) join(t *testing.T) {
	t.Helper()
	var err error
	if k.job, err = k.e.Join(k.token); err != nil {
		t.Fatal(err)
	}
	k.world = 1
}

// wants requests importance under a name, with a given cache size.
func (k *taker) wants(name string, cache int64) error {
	_, err := k.e.Importance(context.Background(), k.job, 0, "run", fmt.Appendf(nil, `{"method":"shade","name":%q,"batch_size":16,"world_size":1,"lag":0,"seed":5,"cache":%d}`, name, cache))
	return err
}

// areOver waits until the server has ended jobs.
func areOver(t *testing.T, e *Engine, tokens ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the jobs %q end", tokens), func() bool {
		e.nudge()
		over := 0
		for _, j := range e.Status().Jobs {
			if j.Ended && slices.Contains(tokens, j.ID) {
				over++
			}
		}
		return over == len(tokens)
	})
}

// TestNameOfAJobThatWasTakenOver: a job takes over the name of one whose clients have left. When the server ends the first job, a minute later, the second one keeps the name, is counted, and ends with the server.
func TestNameOfAJobThatWasTakenOver(t *testing.T) {
	d, o := small(t, schedule.Job{})
	o.Memory, o.Patience, o.LateEpoch = 32<<20, 20*time.Second, 20*time.Millisecond
	e := open(t, o)
	first, second, third := taker{losing: losing{d: d, e: e}, token: "first"}, taker{losing: losing{d: d, e: e}, token: "second"}, taker{losing: losing{d: d, e: e}, token: "third"}
	first.join(t)
	if err := first.wants("default", 1e6); err != nil {
		t.Fatal(err)
	}
	e.Leave(first.job)
	second.join(t)
	if err := second.wants("default", 2e6); err != nil {
		t.Fatal(err)
	}
	left := e.spareMemory()
	areOver(t, e, "first")
	third.join(t)
	if err := third.wants("default", 1e6); err == nil || !strings.Contains(err.Error(), `job name "default" is in use: pass name=`) {
		t.Errorf("a third job asks for the name: %v", err)
	}
	if now := e.spareMemory(); now != left {
		t.Errorf("%d bytes are left when the first job is over, and were before", now-left)
	}
	second.epochs(t, 0, 2)
	closeEngine(t, e)
	if _, err := e.Unstable(second.job, 0); !errors.Is(err, deliver.ErrClosing) {
		t.Errorf("the second job after Close: %v", err)
	}
}

// TestJobComesBackToATakenName: a client of a job returns after another job took over the job's name. It gets an error, and continues when the name is free again.
func TestJobComesBackToATakenName(t *testing.T) {
	d, o := small(t, schedule.Job{})
	o.Patience = 20 * time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	first, second := taker{losing: losing{d: d, e: e}, token: "first"}, taker{losing: losing{d: d, e: e}, token: "second"}
	first.join(t)
	if err := first.wants("default", 1e6); err != nil {
		t.Fatal(err)
	}
	first.epochs(t, 0, 2)
	e.Leave(first.job)
	second.join(t)
	if err := second.wants("default", 1e6); err != nil {
		t.Fatal(err)
	}
	first.join(t)
	if _, _, err := e.OrderPage(t.Context(), first.job, 1, 0, 0, 8); err == nil || !strings.Contains(err.Error(), "another job took") {
		t.Errorf("a job whose name was taken over asks for its order: %v", err)
	}
	if err := first.wants("default", 1e6); err == nil || !strings.Contains(err.Error(), "pass name=") {
		t.Errorf("it asks for importance again: %v", err)
	}
	if err := first.wants("mine", 1e6); err != nil {
		t.Errorf("it asks for another name: %v", err)
	}
	first.epochs(t, 0, 3)
	second.epochs(t, 0, 2)
	e.Leave(first.job)
	e.Leave(second.job)
	second.join(t)
	if err := second.wants("default", 1e6); err != nil {
		t.Errorf("a job comes back to its own name: %v", err)
	}
	e.Leave(second.job)
	first.join(t)
	if err := first.wants("mine", 1e6); err != nil {
		t.Errorf("a job comes back to its own name: %v", err)
	}
	first.epochs(t, 3, 4)
}

// TestNamesChangeHands: jobs take one name from each other, while the server ends jobs whose clients have left. At any time at most one job has the name, and at the end all memory is free.
func TestNamesChangeHands(t *testing.T) {
	d, o := small(t, schedule.Job{})
	o.Memory, o.Patience, o.LateEpoch = 32<<20, 20*time.Second, time.Millisecond
	e := open(t, o)
	left := e.spareMemory()
	var nameTaken sync.Mutex // held by the connected job that has the name
	var jobs sync.WaitGroup
	for k := range 4 {
		jobs.Go(func() {
			for life := range 12 {
				job := taker{losing: losing{d: d, e: e}, token: fmt.Sprint(k, life%2)}
				job.join(t)
				if err := job.wants("default", 1e6); err == nil {
					if !nameTaken.TryLock() {
						t.Error("two jobs have the name")
					} else {
						if _, _, err := e.OrderPage(t.Context(), job.job, 0, 0, 0, 8); err != nil {
							t.Errorf("the job that has the name: %v", err)
						}
						nameTaken.Unlock()
					}
				} else if !strings.Contains(err.Error(), "pass name=") {
					t.Error(err)
				}
				e.Leave(job.job)
				time.Sleep(time.Duration(k) * time.Millisecond) // the jobs last for different times, so that each has the name at some time
			}
		})
	}
	jobs.Wait()
	waitFor(t, "the memory of all jobs comes back", func() bool { e.nudge(); return e.spareMemory() == left })
	closeEngine(t, e)
}

// TestHungImportanceFile: a disk that hangs below a job's file delays training only briefly, and does not delay the stop of the server. A disk that fails costs a warning.
func TestHungImportanceFile(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "rename"} {
		t.Run(step, func(t *testing.T) {
			d, o := small(t, schedule.Job{World: 1})
			testenv.Allow(filepath.Dir(o.Dirs[0])) // what hangs stays open
			testenv.Allow(filepath.Dir(d.dir))
			var log logged
			o.Patience, o.Timeout, o.Logger = 2*time.Second, 3*time.Second, log.logger()
			hold := make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			defer release()
			o.IO.Inject = func(io *blockio.IO) {
				blockio.InjectPlain(io, func(_ int64, path, at string) blockio.Fault {
					if at == step && strings.Contains(path, state.FilePrefix) {
						return blockio.Fault{Hold: hold}
					}
					return blockio.Fault{}
				})
			}
			e := open(t, o)
			job := taker{losing: losing{d: d, e: e}, token: "job"}
			job.join(t)
			if err := job.wants("default", 1e6); err != nil {
				t.Fatal(err)
			}
			orders := job.epochs(t, 0, 4)
			if drawn := slices.Compact(slices.Sorted(slices.Values(orders[1]))); len(drawn) == len(d.bytes) {
				t.Error("epoch 1 is a plain permutation")
			}
			if said := log.lines("is not saved in time"); len(said) != 1 {
				t.Errorf("log lines about the hung disk: %q, want one", said)
			}
			if step == "sync" { // the hung file may still be written, so no other job may have it
				e.Leave(job.job)
				other := taker{losing: losing{d: d, e: e}, token: "other"}
				other.join(t)
				if err := other.wants("default", 1e6); err == nil || !strings.Contains(err.Error(), "look at the disk") {
					t.Errorf("another job takes the name: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // as a server that ends does
				defer cancel()
				if _, err := e.Importance(ctx, other.job, 0, "run", []byte(`{"method":"shade","batch_size":16,"world_size":1}`)); err == nil {
					t.Error("the name of a job whose file hangs is free")
				}
			}
			closesLate(t, e, 100*time.Millisecond, release)
			release()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // in production the end of the process ends it
			defer cancel()
			if err := errors.Join(e.halt(ctx), e.cache.IO.Close(), closeLearnt(e)); err != nil {
				t.Error(err)
			}
			takeBack(e)
		})
	}
}

// TestOrderThatCantBeGiven: an order for which the schedule has no room at first is published when it has room. Until then requests get an error with the reason.
func TestOrderThatCantBeGiven(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Timeout, o.Patience = 2*time.Second, time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, fmt.Sprintf(shade, 0))
	l.epochs(t, 0, 1)
	share, room := e.owner.importance.Load().room.Orders, int64(0)
	for n := share.Limit(); n > 0; n /= 2 {
		for share.Take(n) {
			room += n
		}
	}
	if _, _, err := e.OrderPage(t.Context(), 0, 1, 0, 0, 8); err == nil || !strings.Contains(err.Error(), "order of epoch 1 is drawn and cannot be published") {
		t.Errorf("an order that the schedule has no room for: %v", err)
	}
	share.Give(room)
	waitFor(t, "the order is given", func() bool {
		_, _, err := e.OrderPage(t.Context(), 0, 1, 0, 0, 8)
		return err == nil
	})
	l.epochs(t, 1, 3)
}
