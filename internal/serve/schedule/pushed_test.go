package schedule

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lcache/chunker"
	"lcache/internal/memquota"
	"lcache/internal/testenv"
	"lcache/sample"
)

// refused fails the test unless err refuses an order for that reason.
func refused(t *testing.T, err error, why string) {
	t.Helper()
	var wrong *Error
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want that the order is refused because of %q", err, why)
	}
}

// TestTwoPushersAtOnce: two processes claim a rank and push for it at the same time. In every sequence of their
// steps, the order of the last owner counts.
func TestTwoPushersAtOnce(t *testing.T) {
	idle := func(int) bool { return false }
	none := func(int, int) bool { return false }
	for _, turns := range [][4]int{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}, {1, 0, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}} {
		s, err := New(Job{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		var claimed [2]bool
		for _, pid := range turns {
			if !claimed[pid] {
				claimed[pid] = true
				if err := s.Claim(pid, 0, 0, idle); err != nil {
					t.Errorf("%v: claim for process %d: %v", turns, pid, err)
				}
				continue
			}
			_, _, err := s.Push(t.Context(), Pusher{Pid: pid}, 0, 0, Cut([][]sample.Index{{sample.Index(pid)}}), none)
			if owner := s.owners[0]; owner == pid && err != nil {
				t.Errorf("%v: the order of process %d, which has the rank, gave %v", turns, pid, err)
			} else if owner != pid {
				refused(t, err, "process "+strconv.Itoa(owner)+" has taken over the order of rank 0")
			}
		}
		if _, g := s.stateOf(0, 0); int(g.batch(0)[0]) != s.owners[0] {
			t.Errorf("%v: the rank is process %d's, its order another one's", turns, s.owners[0])
		}
	}
}

// TestDroppedEpochsAreRemembered: an epoch whose pushed orders were dropped differs from one that never had any, even
// after many drops.
func TestDroppedEpochsAreRemembered(t *testing.T) {
	testenv.WithoutRace(t)
	s, err := New(Job{Recipe: "torch.distributed_sampler", Seed: "7", BatchSize: 4, World: 1}, 8)
	if err != nil {
		t.Fatal(err)
	}
	s.CountIn(memquota.New(0).Share(8<<10, 8<<10))
	if err := s.Claim(1, 0, 0, func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	all := func(int, int) bool { return true }
	order := [][]sample.Index{{7, 6, 5, 4}, {3, 2, 1, 0}}
	const pushed = mostDropped + 1000
	for epoch := range pushed {
		if _, _, err := s.Push(t.Context(), Pusher{Pid: 1}, epoch, 0, Cut(order), all); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.epochs); n > mostDropped+100 {
		t.Errorf("%d epochs are remembered", n)
	}
	for _, epoch := range []int{0, 1, mostDropped / 2, mostDropped, pushed - 10} {
		if _, _, err := s.Chunk(t.Context(), chunker.Position{Epoch: epoch}); err == nil || !strings.Contains(err.Error(), "push it again") {
			t.Errorf("epoch %d: %v, want that its order is to be pushed again: the recipe's would be another one", epoch, err)
		}
	}
	if _, _, err := s.Push(t.Context(), Pusher{Pid: 1}, 1, 0, Cut(order), all); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range s.epochs {
		if e.state.isDropped() {
			n++
		}
	}
	if s.dropped != n {
		t.Errorf("%d dropped epochs are counted, %d are remembered", s.dropped, n)
	}
	if _, _, err := s.Push(t.Context(), Pusher{Pid: 1}, pushed-1, 0, Cut(order), all); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Chunk(t.Context(), chunker.Position{Epoch: pushed - 1}); err != nil || !slices.Equal(got, order[0]) {
		t.Errorf("the last epoch is %v, %v", got, err)
	}
	if _, _, err := s.Chunk(t.Context(), chunker.Position{Epoch: pushed + 1}); err != nil {
		t.Errorf("an epoch without a pushed order: %v", err)
	}
}
