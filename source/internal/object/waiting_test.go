package object

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowly returns a byte every five seconds.
type slowly struct{ left int }

func (s *slowly) Read(p []byte) (int, error) {
	time.Sleep(5 * time.Second)
	if s.left == 0 {
		return 0, io.EOF
	}
	s.left--
	p[0] = 0
	return 1, nil
}

func (s *slowly) Close() error { return nil }

// TestWaitForOthersIsNoSilence: a read waits longer than its patience for other reads, and then has a temporary
// error. It is retried.
func TestWaitForOthersIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 9 // bytes of the reads that the others wait for: 45 s
		s := &script{data: make([]byte, slow)}
		refused := false
		var mu sync.Mutex
		s.do = func(_ int, q Request, a *Answer) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case q.Key == "slow":
				a.Body = &slowly{slow}
			case !refused:
				refused = true
				return passing("connection refused")
			}
			return nil
		}
		r := NewReader(s, Options{Median: startBytes, NoHedge: true})
		var all sync.WaitGroup
		for range startLow {
			all.Go(func() {
				if _, err := r.Read(t.Context(), Object{"slow", slow, nil}, make([]byte, slow)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if _, err := r.Read(t.Context(), Object{"k", slow, nil}, make([]byte, slow)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 40*time.Second {
			t.Errorf("it took %v: it waited for no other read, and the test shows nothing", took)
		}
		all.Wait()
	})
}
