package logfile

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestHealthCountsErrors(t *testing.T) {
	sec := func(s ...int) []int { return s }
	for _, c := range []struct {
		name   string
		errors []int // seconds
		aside  bool
	}{
		{"none", nil, false},
		{"two", sec(0, 1), false},
		{"three at once", sec(5, 5, 5), true},
		{"three in a minute", sec(0, 30, 60), true},
		{"three in more", sec(0, 30, 61), false},
		{"two and two", sec(0, 1, 100, 101), false},
		{"the last three", sec(0, 90, 100, 120), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, start := newHealth(asideErrors, hungTicks, time.Second), time.Now()
			aside := false
			for i, s := range c.errors {
				h.began()
				if aside = h.done(start.Add(time.Duration(s)*time.Second), unix.EIO); aside && i != len(c.errors)-1 {
					t.Errorf("put aside by error %d of %d", i+1, len(c.errors))
				}
				h.began()
				h.done(start, nil) // what succeeds between them forgives nothing
			}
			if aside != c.aside || h.isQuarantined() != c.aside {
				t.Errorf("aside %v, want %v", aside, c.aside)
			}
			if _, n, _, last := h.report(); int(n) != len(c.errors) || (n > 0) != errors.Is(last, unix.EIO) {
				t.Errorf("%d errors, the last %v", n, last)
			}
		})
	}
}

func TestHealthSeesHangs(t *testing.T) {
	now, hung := time.Now(), errors.New("hung")
	h := newHealth(asideErrors, 3, time.Second)
	ticks := func(n int) (aside bool) {
		for range n {
			aside = h.tick(now, hung)
		}
		return aside
	}
	if ticks(10) {
		t.Fatal("a device without transfers counts as hung")
	}
	h.began()
	h.began()
	if ticks(2) {
		t.Fatal("the device counts as hung before its deadline")
	}
	h.done(now, nil) // one transfer ended: the other one has the whole deadline again
	if ticks(3) {
		t.Fatal("the device counts as hung although a transfer ended")
	}
	h.done(now, nil)
	ticks(5)
	h.began()
	if ticks(2) {
		t.Fatal("the deadline of a transfer began before the transfer")
	}
	left := h.left()
	select {
	case <-left:
		t.Fatal("quarantine was reported, want none")
	default:
	}
	if !ticks(1) || !h.isQuarantined() {
		t.Fatal("the device is not quarantined at its deadline")
	}
	<-left
	h.done(now, nil)
	if !h.isQuarantined() || ticks(5) {
		t.Error("a late transfer ended the quarantine, want that only a probe does")
	}
}

// The wait for a probe doubles up to its bound, over several troubles of one kind too, and a device that stayed normal for a while begins with the first wait again.
func TestHealthProbes(t *testing.T) {
	now := time.Now()
	h := newHealth(asideErrors, 3, time.Second)
	wait := func() (n int) {
		for !h.due(now) {
			now = now.Add(time.Second)
			n++
		}
		return n
	}
	if h.due(now.Add(time.Hour)) {
		t.Fatal("a normal device is probed")
	}
	h.put(now, unix.EIO)
	var waits []int
	for range 9 {
		waits = append(waits, wait())
		h.probed(now, unix.EIO)
	}
	for i, want := range []int{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		if waits[i] != want {
			t.Fatalf("waits %v", waits)
		}
	}
	wait()
	h.probed(now, nil)
	if h.isQuarantined() || h.due(now.Add(time.Hour)) {
		t.Fatal("the device is quarantined after a good probe")
	}
	select {
	case <-h.left():
		t.Fatal("quarantine was reported, want none")
	default:
	}
	now = now.Add(10 * time.Second)
	h.put(now, unix.EIO)
	if n := wait(); n != 64 {
		t.Errorf("probed after %d s, want 64 s: the last trouble was recent", n)
	}
	h.probed(now, nil)
	now = now.Add(10 * time.Minute)
	h.put(now, unix.EIO)
	if n := wait(); n != 1 {
		t.Errorf("probed after %d s, want the first wait of 1 s again", n)
	}
	if _, _, asides, _ := h.report(); asides != 3 {
		t.Errorf("put aside %d times", asides)
	}
}
