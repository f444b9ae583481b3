package object

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudgetSpare: successes release retries that begin to wait a little later, and these are counted.
func TestBudgetSpare(t *testing.T) {
	b := newBudget()
	for i := range budgetLeast {
		if !b.take() {
			t.Fatalf("retry %d is delayed", i)
		}
	}
	if b.take() {
		t.Error("a retry beyond the budget is not delayed")
	}
	b.succeeded()
	for i, want := range []bool{true, true, false} {
		if b.take() != want {
			t.Errorf("retry %d after a success: delayed is %t", i, want)
		}
	}
	for range 100 {
		b.succeeded()
	}
	more := 0
	for b.take() {
		more++
	}
	if counted := b.retries[b.turn()]; more != budgetLeast || counted != 2*budgetLeast+2 {
		t.Errorf("%d go on after many successes, want %d; %d are counted", more, budgetLeast, counted)
	}
}

// TestBudgetCountsAll: retries beyond the budget make the others wait: those released by a success, continued
// answers, and last attempts.
func TestBudgetCountsAll(t *testing.T) {
	for name, send := range map[string]func(b *budget){
		"let go by a success": func(b *budget) {
			b.waiting = append(b.waiting, make(chan struct{}), make(chan struct{}))
			b.succeeded()
		},
		"continued": func(b *budget) { b.retry(); b.retry() },
	} {
		b := newBudget()
		for range budgetLeast - 2 {
			b.take()
		}
		if send(b); b.take() {
			t.Errorf("%s: a retry more than the minute has is not delayed", name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		var lasts, nones int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				let := b.wait(t.Context(), 4*time.Second, i%2 == 0)
				mu.Lock()
				defer mu.Unlock()
				switch let {
				case lastTry:
					lasts++
				case none:
					nones++
				}
			})
		}
		wg.Wait()
		// Any reader may get the ten retries of the minute. No reader waits long enough for the one of each five seconds.
		if counted := b.retries[0] + b.retries[1] + b.retries[2] + b.retries[3] + b.retries[4]; lasts+nones != 50 || counted != budgetLeast+lasts || nones < 20 {
			t.Errorf("%d last tries, %d none, %d counted", lasts, nones, counted)
		}
	})
}

// TestLongOutageIsNoStorm: in a long outage a store gets one last request for each read, and otherwise only the
// retries of the budget, however many readers continue.
func TestLongOutageIsNoStorm(t *testing.T) {
	const readers, minutes = 200, 10
	synctest.Test(t, func(t *testing.T) {
		s := &script{data: content(1000), do: func(int, Request, *Answer) error { return passing("connection refused") }}
		r := NewReader(s, Options{NoHedge: true})
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		reads := int64(0)
		for range readers {
			wg.Go(func() {
				for time.Since(began) < minutes*time.Minute {
					mu.Lock()
					reads++
					mu.Unlock()
					if _, err := r.Read(t.Context(), Object{"k", 1000, nil}, make([]byte, 1000)); err == nil {
						t.Error("there is nothing to read")
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		c := r.Counts()
		probes, minute := int64(took/budgetPause)+1, int64(took/time.Minute)+2
		t.Logf("%d reads, %d requests, %d of them retries, in %v", reads, c.Requests, c.Retries, took)
		if c.Requests != reads+c.Retries || c.Retries > reads+budgetLeast*minute+readers/budgetShare+probes {
			t.Errorf("%d retries of %d reads, want at most one each, and the budget's", c.Retries, reads)
		}
	})
}

// TestSteadyErrors: a store that fails three of ten requests gets as many retries as failures, and no read runs out
// of patience.
func TestSteadyErrors(t *testing.T) {
	const readers, each = 40, 100
	synctest.Test(t, func(t *testing.T) {
		failed := int64(0)
		var mu sync.Mutex
		s := &script{data: content(1000)}
		s.do = func(n int, _ Request, _ *Answer) error {
			time.Sleep(10 * time.Millisecond)
			if n*7%10 >= 3 { // all remainders take turns
				return nil
			}
			mu.Lock()
			failed++
			mu.Unlock()
			return passing("internal error")
		}
		r := NewReader(s, Options{NoHedge: true})
		began := time.Now()
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				for range each {
					if _, err := r.Read(t.Context(), Object{"k", 1000, nil}, make([]byte, 1000)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		c, took := r.Counts(), time.Since(began)
		t.Logf("%d requests, %d of them retries, in %v", c.Requests, c.Retries, took)
		if share := float64(c.Retries) / float64(c.Requests); c.Retries != failed || share > 0.31 {
			t.Errorf("%d retries of %d failures, %.2f of the requests, want 0.3", c.Retries, failed, share)
		}
		if took > 30*time.Second {
			t.Errorf("all took %v: the budget keeps readers from a store that answers", took)
		}
	})
}
