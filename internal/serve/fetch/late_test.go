package fetch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/logfile"
	"lcache/sample"
	"lcache/source"
)

// soon is a deadline that every one of these tests reaches, so it is short.
const soon = 20 * time.Millisecond

// untilUnused waits until side memory is free again. Only the test's deadline limits the wait.
func (b *bed) untilUnused() {
	for {
		changed := b.Staging.Changed()
		if b.Staging.SideUsed() == 0 {
			return
		}
		<-changed
	}
}

// If the log hangs, the next supplier is asked. A buffer that the late answer may still write to is not reused
// before, even if the client has released its batch.
func TestLogHangs(t *testing.T) {
	b, _ := newBed(t, 8, 6, fetch.Options{LogTimeout: soon})
	release := fetchtest.HoldReads(t, b.io, func(int64) bool { return true })
	extents, got, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{0, 7})
	if err != nil {
		t.Fatal(err)
	}
	if b.Is(0, got[0].Data); got[0].From != sample.FromSource || b.Fetcher.Stats.Timeouts.Load() != 1 || b.Fetcher.Stats.CorruptSamples.Load() != 0 {
		t.Errorf("origin %v, %d timeouts, %d corrupt", got[0].From, b.Fetcher.Stats.Timeouts.Load(), b.Fetcher.Stats.CorruptSamples.Load())
	}
	if b.Locations.Get(0) == 0 {
		t.Error("a slow disk cost a sample its place")
	}
	for _, x := range extents {
		b.Staging.Drop(x)
	}
	if b.Staging.SideUsed() == 0 {
		t.Error("memory that the kernel may still write to was given back")
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := b.Fetcher.Close(ctx); err == nil {
		t.Error("Close did not report the read that has not ended")
	}
	release()
	b.untilUnused()
}

// Regression: a sample that moved while its read hung was read again into the same buffer, and the late answer
// overwrote it.
func TestLateAnswerOfAMovedSample(t *testing.T) {
	b, _ := newBed(t, 8, 6, fetch.Options{LogTimeout: soon})
	if b.Scramble(0) != 1 {
		t.Fatal("the sample is not on disk")
	}
	next := b.Begin(1, []uint64{0, 9}, 8)
	release := fetchtest.HoldReads(t, b.io, func(n int64) bool {
		if n == 0 {
			b.Fill(next, 0, 0) // stays in the write buffer
		}
		return n == 0
	})
	extents, got, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{0})
	if err != nil {
		t.Fatal(err)
	}
	b.Is(0, got[0].Data)
	for _, x := range extents {
		b.Staging.Share(x)
		b.Staging.Drop(x)
	}
	release()
	done, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Fetcher.Close(done); err != nil { // the late answer has arrived
		t.Fatal(err)
	}
	b.Is(0, got[0].Data)
	for _, x := range extents {
		b.Staging.Drop(x)
	}
}

// Regression: on a hung disk, a request for many samples waited for one deadline after the other. Quarantining the
// device ends the reads in flight and answers later ones at once.
func TestLogHangsForMany(t *testing.T) {
	const n = 200
	b, _ := newBedOn(t, n+1, n+1, fetch.Options{LogTimeout: time.Hour}, logfile.Options{Deadline: soon, ProbeAfter: time.Hour})
	release := fetchtest.HoldReads(t, b.io, func(int64) bool { return true })
	var all []sample.Index
	for i := range sample.Index(80) { // with as much memory again for the hung reads, this fits
		all = append(all, 2*i)
	}
	b.get(t, all...)
	if n := b.Fetcher.Stats.Timeouts.Load(); n == 0 || n > 64 {
		t.Errorf("%d reads were given up, want no more than were under way at once", n)
	}
	if b.Store.Devices()[0].State != logfile.DeviceAside || b.Locations.Get(0) == 0 {
		t.Errorf("%+v; sample 0 is at %v, want the device aside and places kept", b.Store.Devices(), b.Locations.Get(0))
	}
	release()
	b.untilUnused()
}

// If the source hangs, a request fails at its deadline, with an error that names sample and source. Its memory is not
// reused.
func TestSourceHangs(t *testing.T) {
	for _, deadline := range []string{"the source's", "the request's"} {
		o := fetch.Options{SourceTimeout: soon}
		if deadline == "the request's" {
			o.SourceTimeout = time.Hour
		}
		b, _ := newBed(t, 3, 0, o)
		hung := make(chan struct{})
		b.Source.Before(func(_ context.Context, e sample.Entry, dst []byte) error {
			if e.Name == b.Name(1) {
				<-hung // ignores its context, like a file on a dead server
				for i := range dst {
					dst[i] = 0xee
				}
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*soon)
		if deadline == "the source's" {
			ctx = t.Context()
		}
		_, _, err := b.Fetcher.FetchAll(ctx, []sample.Index{1, 0, 2})
		cancel()
		var named *source.SampleError
		if !errors.As(err, &named) || named.Name != b.Name(1) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), b.Dir) {
			t.Errorf("%s deadline: %v", deadline, err)
		}
		if b.Staging.SideUsed() == 0 {
			t.Error("memory that the source may still write to was given back")
		}
		close(hung)
		b.untilUnused()
		if b.Fetcher.Stats.Timeouts.Load() != 1 {
			t.Errorf("%d timeouts", b.Fetcher.Stats.Timeouts.Load())
		}
	}
}

// Regression: while hung reads held all jobs of the source, others waited for a job without the source's deadline.
func TestSourceDeadlineCoversTheWaitForAJob(t *testing.T) {
	b, _ := newBed(t, 3, 0, fetch.Options{SourceTimeout: soon, Jobs: 1})
	hung := make(chan struct{})
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { <-hung; return nil })
	for i := range sample.Index(3) {
		if _, _, err := b.Fetcher.Source(context.Background(), i, make([]byte, 3000)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sample %d: %v", i, err)
		}
	}
	close(hung)
}

// As many samples are read at once as there are jobs, and never more. A read without an idle reader gets one later.
func TestSourceJobs(t *testing.T) {
	const n, jobs = 60, 3
	b, _ := newBed(t, n, 0, fetch.Options{Jobs: jobs})
	var reading atomic.Int64
	var once sync.Once
	all := make(chan struct{})
	b.Source.Before(func(context.Context, sample.Entry, []byte) error {
		defer reading.Add(-1)
		switch k := reading.Add(1); {
		case k == jobs:
			once.Do(func() { close(all) })
		case k > jobs:
			t.Errorf("%d samples are read at once", k)
		}
		<-all
		return nil
	})
	var wg sync.WaitGroup
	for i := range sample.Index(n) {
		wg.Go(func() {
			data := make([]byte, 3000)
			if _, _, err := b.Fetcher.Source(context.Background(), i, data); err != nil || !b.Is(i, data) {
				t.Errorf("sample %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// While a device is quarantined, samples come from the source. When it answers again, they come from the log.
func TestLogAnswersAgain(t *testing.T) {
	b, _ := newBedOn(t, 8, 6, fetch.Options{LogTimeout: time.Hour}, logfile.Options{Deadline: soon, ProbeAfter: time.Millisecond})
	release := fetchtest.HoldReads(t, b.io, func(int64) bool { return true })
	if got := b.get(t, 0); !got[0] {
		t.Error("the hung log answered")
	}
	release()
	b.untilUnused()
	for again := time.Now().Add(10 * time.Second); b.get(t, 1)[0]; {
		if time.Now().After(again) {
			t.Fatal("the log is never read again")
		}
	}
	if b.Fetcher.Stats.CorruptSamples.Load() != 0 || b.Locations.Get(0) == 0 {
		t.Error("a device that was aside cost samples their places")
	}
}

// Regression: behind hung reads, a request waited without a deadline for its turn to read the log.
func TestTurnAtTheLogHasADeadline(t *testing.T) {
	const turns, n = 64, 300
	b, _ := newBedOn(t, n, n, fetch.Options{LogTimeout: time.Hour}, logfile.Options{Deadline: time.Hour})
	var one []sample.Index // samples that don't cross blocks, so each is one transfer
	for i := sample.Index(0); len(one) < turns+1; i++ {
		if _, _, off, _ := b.Locations.Split(b.Locations.Get(i)); off/4096 == (off+2999)/4096 {
			one = append(one, i)
		}
	}
	hung := make(chan struct{}, n)
	release := fetchtest.HoldReads(t, b.io, func(int64) bool { hung <- struct{}{}; return true })
	ctx, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, _, err := b.Fetcher.FetchAll(ctx, one[:turns])
		first <- err
	}()
	for range turns {
		<-hung
	}
	late, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, _, err := b.Fetcher.FetchAll(late, one[turns:]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	giveUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	release()
	b.untilUnused()
}
