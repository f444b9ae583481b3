package engine

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/testenv"
	"lcache/sample"
)

// long is an order of n samples, in batches of 16, different for each seed.
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

// refused fails unless a push returned an error with a given reason.
func refused(t *testing.T, err error, why string) {
	t.Helper()
	argument := new(deliver.ArgumentError)
	if !errors.As(err, &argument) || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a refusal that says %q", err, why)
	}
}

// A client may push orders of any number of epochs up to a limit. Orders beyond it are an error, and the kept orders stay as they were pushed.
func TestPushedOrdersHaveALimit(t *testing.T) {
	testenv.Long(t)
	testenv.WithoutRace(t)
	d, e := unprefilled(t, cache.LayoutLog, 1)
	const limit = 4 << 20
	e.orders.SetLimit(limit)
	attach(t, e)
	first := d.drawn(1, 1)[0]
	push(t, e, 0, 0, first)
	before, accepted := keptBytes(), 0
	for i := range 600 {
		switch err := e.Push(schedule.Pusher{Pid: os.Getpid()}, 1+i*7919, 0, long(100_000, i, len(d.bytes))); {
		case err == nil:
			accepted++
		default:
			refused(t, err, "push it when one of them has been read")
		}
	}
	if kept := keptBytes() - before; kept > limit+1<<20 || accepted < 8 || accepted > 11 {
		t.Errorf("%d orders are kept and take %d bytes, want 8 to 11 orders that fit in %d", accepted, kept, limit)
	}
	d.readAsked(t, e, 0, 0, first)
	if s := e.Status().Jobs[0]; s.Divergences != 0 || len(s.EpochsDone) != 1 || s.EpochsDone[0].OrderDigest == nil {
		t.Errorf("%d divergences, epochs done %+v", s.Divergences, s.EpochsDone)
	}
}

// Empty orders take memory, too, and so do ranks that were never used.
func TestTinyOrdersHaveALimit(t *testing.T) {
	testenv.WithoutRace(t)
	_, e := unprefilled(t, cache.LayoutLog, 1)
	e.orders.SetLimit(1 << 20)
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
				e.Push(schedule.Pusher{Pid: os.Getpid()}, epoch, rank, tiny)
			})
		})
	}
	e.orders.SetLimit(1 << 30)
	for rank := range 2 * schedule.MostRanks {
		err := e.Push(schedule.Pusher{Pid: os.Getpid()}, 0, 1<<20+rank, tiny)
		if rank > schedule.MostRanks {
			refused(t, err, "orders of 1024 other ranks")
		}
	}
}

// A client that pushes a few epochs ahead can go on forever: orders of past epochs make room.
func TestOrdersThatAreReadMakeRoom(t *testing.T) {
	d, e := unprefilled(t, cache.LayoutLog, 1)
	e.orders.SetLimit(6 * schedule.PushBytes(d.drawn(0, 1)[0]))
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
	if _, err := e.samplesAt(t.Context(), position(0, 0, 0)); err == nil || !strings.Contains(err.Error(), "push it again") {
		t.Errorf("an epoch whose order was dropped gave %v, want what to do", err)
	}
	push(t, e, epochs+2, 0, d.drawn(1, 1)[0])
}

// The pushed orders of a process that has exited make room for another job, which may begin anywhere.
func TestOrdersOfAProcessThatIsGone(t *testing.T) {
	d, e := unprefilled(t, cache.LayoutLog, 1)
	order := d.drawn(0, 1)[0]
	e.orders.SetLimit(6 * schedule.PushBytes(order))
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
		if err := e.Push(schedule.Pusher{Pid: other.Process.Pid}, 100+epoch, 1, order); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, e.Push(schedule.Pusher{Pid: os.Getpid()}, 0, 0, order), "push it when")
	c.Disconnected()
	for epoch := range 3 {
		push(t, e, 70+epoch, 0, d.drawn(uint64(epoch), 1)[0])
	}
	d.readAsked(t, e, 70, 0, order)
	if s := e.Status().Jobs[0]; s.Divergences != 0 || s.EpochsDone[0].Epoch != 70 {
		t.Errorf("%d divergences, epochs done %+v", s.Divergences, s.EpochsDone)
	}
}
