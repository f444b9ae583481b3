package engine

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lcache/deliver"
	"lcache/sample"
)

// long is an order of n samples, in batches of 16, that is another one for each seed.
func long(n, seed, samples int) (batches [][]sample.Index) {
	for at := 0; at < n; at += 16 {
		batch := make([]sample.Index, 16)
		for i := range batch {
			batch[i] = sample.Index((seed + at + i) % samples)
		}
		batches = append(batches, batch)
	}
	return batches
}

// refused fails unless an order was refused for a reason.
func refused(t *testing.T, err error, why string) {
	t.Helper()
	argument := new(deliver.ArgumentError)
	if !errors.As(err, &argument) || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a refusal that says %q", err, why)
	}
}

// Orders of as many epochs as a client likes are kept up to a limit; what does not fit is refused, and what is kept stays as it was pushed.
func TestPushedOrdersHaveALimit(t *testing.T) {
	d, e := unprefilled(t, layoutLog, 1)
	const limit = 4 << 20
	e.schedule.limit = limit
	attach(t, e)
	first := d.drawn(1, 1)[0]
	push(t, e, 0, 0, first)
	before, accepted := keptBytes(), 0
	for i := range 600 {
		switch err := e.Push(Pusher{Pid: os.Getpid()}, 1+i*7919, 0, long(100_000, i, len(d.bytes))); {
		case err == nil:
			accepted++
		default:
			refused(t, err, "push it when one of them has been read")
		}
	}
	if kept := keptBytes() - before; kept > limit+1<<20 || accepted < 8 || accepted > 11 {
		t.Errorf("%d orders are kept and take %d bytes, want those that %d hold", accepted, kept, limit)
	}
	d.readAsked(t, e, 0, 0, first)
	if s := e.Status().Jobs[0]; s.Divergences != 0 || len(s.EpochsDone) != 1 || s.EpochsDone[0].OrderDigest == nil {
		t.Errorf("%d divergences, epochs done %+v", s.Divergences, s.EpochsDone)
	}
}

// Orders of no length take their place, too, and so do ranks that nobody has heard of.
func TestTinyOrdersHaveALimit(t *testing.T) {
	_, e := unprefilled(t, layoutLog, 1)
	e.schedule.limit = 1 << 20
	attach(t, e)
	tiny := [][]sample.Index{{1}}
	for name, at := range map[string]func(i int) (epoch, rank int){
		"epochs": func(i int) (int, int) { return i, 0 },
		"ranks":  func(i int) (int, int) { return 5, i },
		"both":   func(i int) (int, int) { return 1 << 20 * i, 1 << 20 * i },
	} {
		t.Run(name, func(t *testing.T) {
			keepsLittle(t, 10_000, 3<<20, func(i int) {
				epoch, rank := at(i)
				e.Push(Pusher{Pid: os.Getpid()}, epoch, rank, tiny)
			})
		})
	}
	e.schedule.limit = 1 << 30
	for rank := range 2 * mostRanks {
		err := e.Push(Pusher{Pid: os.Getpid()}, 0, 1<<20+rank, tiny)
		if rank > mostRanks {
			refused(t, err, "orders of 1024 other ranks")
		}
	}
}

// A client that pushes a few epochs ahead goes on for as long as it likes: what is behind it makes room.
func TestOrdersThatAreReadMakeRoom(t *testing.T) {
	d, e := unprefilled(t, layoutLog, 1)
	e.schedule.limit = 6 * give(d.drawn(0, 1)[0], Pusher{}).bytes()
	attach(t, e)
	const epochs = 12
	for epoch := range epochs + 2 {
		push(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
		if read := epoch - 2; read >= 0 {
			d.readAsked(t, e, read, 0, d.drawn(uint64(read), 1)[0])
		}
	}
	s := e.Status().Jobs[0]
	if len(s.EpochsDone) != epochs {
		t.Fatalf("%d epochs done, want %d", len(s.EpochsDone), epochs)
	}
	for _, done := range s.EpochsDone {
		if done.OrderDigest == nil {
			t.Errorf("epoch %d has no digest", done.Epoch)
		}
	}
	if _, err := e.chunk(t.Context(), "", position(0, 0, 0)); err == nil || !strings.Contains(err.Error(), "push it again") {
		t.Errorf("an epoch whose order was dropped gave %v, want what to do", err)
	}
	push(t, e, epochs+2, 0, d.drawn(1, 1)[0])
}

// What a process has pushed that is gone makes room for another job, which may begin where it likes.
func TestOrdersOfAProcessThatIsGone(t *testing.T) {
	d, e := unprefilled(t, layoutLog, 1)
	order := d.drawn(0, 1)[0]
	e.schedule.limit = 6 * give(order, Pusher{}).bytes()
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	c, _, err := e.Attach(other.Process.Pid, "")
	if err != nil {
		t.Fatal(err)
	}
	attach(t, e)
	for epoch := range 6 {
		if err := e.Push(Pusher{Pid: other.Process.Pid}, 100+epoch, 1, order); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, e.Push(Pusher{Pid: os.Getpid()}, 0, 0, order), "push it when")
	c.Disconnected()
	for epoch := range 3 {
		push(t, e, 70+epoch, 0, d.drawn(uint64(epoch), 1)[0])
	}
	d.readAsked(t, e, 70, 0, order)
	if s := e.Status().Jobs[0]; s.Divergences != 0 || s.EpochsDone[0].Epoch != 70 {
		t.Errorf("%d divergences, epochs done %+v", s.Divergences, s.EpochsDone)
	}
}

// Of two processes that push for a rank at once, whatever the turns they take, the one that has the rank in the end is the one whose order counts.
func TestTwoPushersAtOnce(t *testing.T) {
	idle := func(int) bool { return false }
	none := func(int, int) bool { return false }
	for _, turns := range [][4]int{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}, {1, 0, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}} {
		s, err := newSchedule(Job{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		var claimed [2]bool
		for _, pid := range turns {
			if !claimed[pid] {
				claimed[pid] = true
				if err := s.claim(pid, 0, 0, idle); err != nil {
					t.Errorf("%v: claim for process %d: %v", turns, pid, err)
				}
				continue
			}
			_, _, err := s.push(t.Context(), Pusher{Pid: pid}, 0, 0, [][]sample.Index{{sample.Index(pid)}}, none)
			if owner := s.owners[0]; owner == pid && err != nil {
				t.Errorf("%v: the order of process %d, which has the rank, gave %v", turns, pid, err)
			} else if owner != pid {
				refused(t, err, "process "+strconv.Itoa(owner)+" has taken over the order of rank 0")
			}
		}
		if g, _ := s.given(0, 0); int(g.batch(0)[0]) != s.owners[0] {
			t.Errorf("%v: the rank is process %d's, its order another one's", turns, s.owners[0])
		}
	}
}

// Epochs whose pushed orders were dropped are told from those that never had one, however many there are.
func TestDroppedEpochsAreRemembered(t *testing.T) {
	s, err := newSchedule(samplerJob(0, 4, 1, false), 8)
	if err != nil {
		t.Fatal(err)
	}
	s.limit = 8 << 10
	if err := s.claim(1, 0, 0, func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	all := func(int, int) bool { return true }
	order := [][]sample.Index{{7, 6, 5, 4}, {3, 2, 1, 0}}
	const pushed = mostGone + 1000
	for epoch := range pushed {
		if _, _, err := s.push(t.Context(), Pusher{Pid: 1}, epoch, 0, order, all); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.gone) + len(s.pushed) + len(s.told) + len(s.since); n > mostGone+100 {
		t.Errorf("%d epochs are remembered", n)
	}
	for _, epoch := range []int{0, 1, mostGone / 2, mostGone, pushed - 10} {
		if _, _, err := s.chunk(t.Context(), position(epoch, 0, 0)); err == nil || !strings.Contains(err.Error(), "push it again") {
			t.Errorf("epoch %d: %v, want that its order is to be pushed again: the recipe's would be another one", epoch, err)
		}
	}
	if got, _, err := s.chunk(t.Context(), position(pushed-1, 0, 0)); err != nil || !slices.Equal(got, order[0]) {
		t.Errorf("the last epoch is %v, %v", got, err)
	}
	if _, _, err := s.chunk(t.Context(), position(pushed+1, 0, 0)); err != nil {
		t.Errorf("an epoch that nobody pushed: %v", err)
	}
}
