package fetch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/sample"
	"lcache/source"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

type bed struct {
	*fetchtest.Bed
	io *blockio.IO
}

// newBed has samples 0…n-1 of 3000 bytes. The first logged of them are in slot 0 of the log, all but the last on
// disk.
func newBed(t *testing.T, n, logged int, o fetch.Options) (*bed, *logfile.Logfile) {
	t.Helper()
	return newBedOn(t, n, logged, o, logfile.Options{})
}

// newBedOn is newBed with options for the log.
func newBedOn(t *testing.T, n, logged int, o fetch.Options, log logfile.Options) (*bed, *logfile.Logfile) {
	t.Helper()
	log.IO = fetchtest.OpenIO(t)
	b := &bed{io: log.IO, Bed: fetchtest.New(t, fetchtest.Options{Sizes: slices.Repeat([]uint32{3000}, n), Log: log, Fetch: o,
		Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 1 << 20, MissBytes: 1 << 20}})}
	t.Cleanup(func() { blockio.Inject(b.io, nil) })
	l := b.Begin(0, []uint64{0, uint64(n) + 1}, n+8)
	for i := range logged {
		b.Fill(l, 0, sample.Index(i))
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, l
}

// get requests samples, checks their bytes and releases them. fromSource is in the order of the request.
func (b *bed) get(t *testing.T, indices ...sample.Index) (fromSource []bool) {
	t.Helper()
	extents, got, err := b.Fetcher.FetchAll(t.Context(), indices)
	if err != nil {
		t.Fatal(err)
	}
	for k, i := range indices {
		b.Is(i, got[k].Data)
		fromSource = append(fromSource, got[k].From == sample.FromSource)
	}
	for _, x := range extents {
		b.Staging.Drop(x)
	}
	return fromSource
}

func TestSuppliersInOrder(t *testing.T) {
	b, _ := newBed(t, 8, 5, fetch.Options{})
	got := b.get(t, 0, 6, 4, 2, 7, 2)
	if want := []bool{false, true, false, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("from the source: %v, want %v", got, want)
	}
	st := &b.Fetcher.Stats
	if st.Reads[sample.FromLog].Reads.Load() != 4 || st.Reads[sample.FromLog].Bytes.Load() != 12000 || st.Reads[sample.FromSource].Reads.Load() != 2 || st.Reads[sample.FromSource].Bytes.Load() != 6000 || len(b.Source.Reads()) != 2 {
		t.Errorf("log %d reads of %d bytes, source %d of %d: %v", st.Reads[sample.FromLog].Reads.Load(), st.Reads[sample.FromLog].Bytes.Load(), st.Reads[sample.FromSource].Reads.Load(), st.Reads[sample.FromSource].Bytes.Load(), b.Source.Reads())
	}
	if _, known := b.Sums.Get(6); !known {
		t.Error("a sum that the source taught is not known")
	}
	// Without a checksum no sample in the log is trusted, and without its Logfile it is not found.
	b.Sums.Forget(0)
	if got := b.get(t, 0, 0); slices.Contains(got, false) && b.Source.Reads()[b.Name(0)] == 0 {
		t.Errorf("a sample without a checksum came from the log: %v", got)
	}
	if err := b.Store.Drop(0); err != nil {
		t.Fatal(err)
	}
	if got := b.get(t, 1); !got[0] {
		t.Error("a sample came from a Logfile that was dropped")
	}
	if st.CorruptSamples.Load()+st.StaleReads.Load()+st.Timeouts.Load() != 0 {
		t.Error("a sample was counted as corrupt")
	}
}

// A sample that moves while it is read is looked up again. That is neither corruption nor a miss.
func TestMovedWhileRead(t *testing.T) {
	b, _ := newBed(t, 6, 5, fetch.Options{})
	old := b.Locations.Get(1)
	next := b.Begin(1, []uint64{0, 7}, 8)
	b.Fill(next, 0, 1, 0, 2)
	moved := b.Locations.Get(1)
	b.Locations.Set(1, old)
	if b.Scramble(1) == 0 {
		t.Fatal("the sample is not on disk")
	}
	b.Fill(next, 0, 3) // a newer copy than the scrambled ones
	fresh, err := next.Append(t.Context(), 0, 1, b.Content(1))
	if err != nil {
		t.Fatal(err)
	}
	_ = moved
	var reads atomic.Int64
	blockio.Inject(b.io, func(_ int64, op *blockio.Op) blockio.Fault {
		if !op.Write && reads.Add(1) == 1 {
			b.Locations.Set(1, b.Locations.At(1, 0, fresh))
		}
		return blockio.Fault{}
	})
	if got := b.get(t, 1); got[0] || b.Fetcher.Stats.CorruptSamples.Load() != 0 || len(b.Source.Reads()) != 0 {
		t.Errorf("from the source %v, %d corrupt, source %v", got, b.Fetcher.Stats.CorruptSamples.Load(), b.Source.Reads())
	}
	if reads.Load() == 0 {
		t.Error("the old place was not read")
	}
}

func TestCorruptIsReadTwiceThenFromTheSource(t *testing.T) {
	for _, recovered := range []bool{false, true} {
		b, _ := newBed(t, 6, 6, fetch.Options{})
		b.SetRecovered(0, recovered)
		if b.Scramble(1) != 1 {
			t.Fatal("the sample is not on disk once")
		}
		var reads atomic.Int64
		blockio.Inject(b.io, func(_ int64, op *blockio.Op) blockio.Fault {
			reads.Add(1)
			return blockio.Fault{}
		})
		if got := b.get(t, 1, 0); !got[0] || got[1] {
			t.Errorf("from the source: %v, want the damaged one alone", got)
		}
		st := &b.Fetcher.Stats
		corrupt, stale := st.CorruptSamples.Load(), st.StaleReads.Load()
		if recovered && (corrupt != 0 || stale != 1) || !recovered && (corrupt != 1 || stale != 0) {
			t.Errorf("recovered %v: %d corrupt, %d stale", recovered, corrupt, stale)
		}
		if b.Locations.Get(1) != 0 || b.Locations.Get(0) == 0 {
			t.Error("the damaged sample still has a place, or the good one has none")
		}
		// Sample 1 crosses from block 0 to the adjacent block 1: each attempt is one read. Sample 0 is in block 0.
		if n := reads.Load(); n != 2+1 {
			t.Errorf("%d reads, want two tries, and one for the good sample", n)
		}
		if got := b.get(t, 1); !got[0] || reads.Load() != 3 {
			t.Error("the bad location was read again")
		}
	}
}

// One bit that flips once in transfer is not corruption.
func TestOneBadTransferIsForgiven(t *testing.T) {
	b, _ := newBed(t, 6, 6, fetch.Options{})
	var reads atomic.Int64
	blockio.Inject(b.io, func(_ int64, op *blockio.Op) blockio.Fault {
		if reads.Add(1) == 1 {
			return blockio.Fault{Flip: 8*700 + 3}
		}
		return blockio.Fault{}
	})
	if got := b.get(t, 0); got[0] || b.Fetcher.Stats.CorruptSamples.Load() != 0 || reads.Load() != 2 {
		t.Errorf("from the source %v, %d corrupt, %d reads", got, b.Fetcher.Stats.CorruptSamples.Load(), reads.Load())
	}
}

// For every n, the n-th disk read fails. The bytes are right, and only the affected samples are read elsewhere.
func TestEveryReadFailsOnce(t *testing.T) {
	for n := int64(0); ; n++ {
		b, _ := newBed(t, 6, 6, fetch.Options{})
		var reads, failed atomic.Int64
		blockio.Inject(b.io, func(int64, *blockio.Op) blockio.Fault {
			if reads.Add(1)-1 == n {
				failed.Add(1)
				return blockio.Fault{Err: unix.EIO}
			}
			return blockio.Fault{}
		})
		got := b.get(t, 0, 1, 2, 3)
		if slices.Contains(got, true) {
			t.Errorf("read %d failed once: from the source %v, want a second try to do", n, got)
		}
		if failed.Load() == 0 {
			break
		}
	}
}

func TestSideMemoryIsFull(t *testing.T) {
	b, _ := newBed(t, 4, 0, fetch.Options{})
	x, ok := b.Staging.Alloc(staging.Side, 0, 1<<20)
	if !ok {
		t.Fatal("no room to begin with")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := b.Fetcher.FetchAll(ctx, []sample.Index{1})
	if !errors.Is(err, fetch.ErrNoRoom) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrNoRoom by the deadline", err)
	}
	// A waiting caller is served as soon as there is room.
	blockedUntil := b.Staging.Changed()
	done := make(chan error, 1)
	go func() {
		extents, _, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{1, 2})
		for _, x := range extents {
			b.Staging.Drop(x)
		}
		done <- err
	}()
	b.Staging.Drop(x)
	<-blockedUntil
	if err := <-done; err != nil {
		t.Errorf("after room was made: %v", err)
	}
}

func TestTooLarge(t *testing.T) {
	b, _ := newBed(t, 4, 0, fetch.Options{})
	indices := make([]sample.Index, 200)
	_, _, err := b.Fetcher.FetchAll(t.Context(), indices)
	var large *fetch.TooLargeError
	if !errors.As(err, &large) || large.Limit != 1<<20 || large.Need != b.Fetcher.Need(indices) || large.Need <= large.Limit {
		t.Errorf("got %v (%+v)", err, large)
	}
}

// If one sample of a request can't be read, the request fails with its name and releases everything.
func TestOneBadSampleEndsTheRequest(t *testing.T) {
	changed := func(b *bed) error { return os.WriteFile(filepath.Join(b.Dir, b.Name(5)), b.Content(4), 0o644) }
	sameTime := func(b *bed) error {
		path := filepath.Join(b.Dir, b.Name(5))
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		b.Know()
		return errors.Join(os.WriteFile(path, b.Content(4), 0o644), os.Chtimes(path, time.Time{}, fi.ModTime()))
	}
	gone := func(b *bed) error { return os.Remove(filepath.Join(b.Dir, b.Name(5))) }
	tests := []struct {
		name string
		do   func(b *bed) error
		want error
	}{{"rewritten", changed, source.ErrChanged}, {"rewritten, times restored", sameTime, source.ErrChanged}, {"removed", gone, source.ErrGone}}
	for _, tt := range tests {
		b, _ := newBed(t, 6, 3, fetch.Options{})
		if err := tt.do(b); err != nil {
			t.Fatal(err)
		}
		extents, got, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{0, 5, 4})
		var named *source.SampleError
		if !errors.Is(err, tt.want) || !errors.As(err, &named) || named.Name != b.Name(5) || extents != nil || got != nil {
			t.Errorf("%s: %v, extents %v", tt.name, err, extents)
		}
		if b.Staging.SideUsed() != 0 {
			t.Errorf("%s: %d bytes of side memory are still used", tt.name, b.Staging.SideUsed())
		}
	}
}

func TestAside(t *testing.T) {
	b, _ := newBed(t, 3, 3, fetch.Options{})
	x, data, err := b.Fetcher.FromSourceOnly(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	b.Is(1, data)
	if b.Source.Reads()[b.Name(1)] != 1 || b.Fetcher.Stats.Reads[sample.FromLog].Reads.Load() != 0 {
		t.Error("the log was read")
	}
	b.Staging.Drop(x)
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { return unix.EIO })
	if _, _, err := b.Fetcher.FromSourceOnly(t.Context(), 1); !errors.Is(err, unix.EIO) || b.Staging.SideUsed() != 0 {
		t.Errorf("got %v, %d bytes used", err, b.Staging.SideUsed())
	}
}

func TestNeedCountsPages(t *testing.T) {
	b, _ := newBed(t, 1, 0, fetch.Options{})
	if n := b.Fetcher.Need([]sample.Index{0, 0}); n != 2*8192 {
		t.Errorf("two samples of 3000 bytes need %d, want a page more each than they fill", n)
	}
	if msg := (&fetch.TooLargeError{Need: 5, Limit: 3}).Error(); !strings.Contains(msg, "5 bytes") || !strings.Contains(msg, "(3)") {
		t.Error(msg)
	}
}

// TestCountedBy: a read counts by its origin in the Counts of its context, one for another machine in ForPeers,
// any other in Rest, and all reads in Stats.
func TestCountedBy(t *testing.T) {
	b, _ := newBed(t, 8, 2, fetch.Options{})
	read := func(ctx context.Context, indices ...sample.Index) {
		t.Helper()
		extents, _, err := b.Fetcher.FetchAll(ctx, indices)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range extents {
			b.Staging.Drop(x)
		}
	}
	var mine, rest fetch.Counts
	read(t.Context(), 2) // no Counts yet
	b.Fetcher.Rest.Store(&rest)
	read(fetch.CountedBy(t.Context(), &mine), 0, 1, 3, 4)
	read(t.Context(), 5)
	read(fetch.ForPeers(t.Context()), 1, 6)
	for _, c := range []struct {
		name            string
		counts          *fetch.Counts
		ofLog, ofSource int64
	}{{"this asker", &mine, 2, 2}, {"the rest", &rest, 0, 1}, {"other machines", &b.Fetcher.Stats.ForPeers, 1, 1}, {"all", &b.Fetcher.Stats.Reads, 3, 5}} {
		for from, want := range map[sample.Origin]int64{sample.FromLog: c.ofLog, sample.FromSource: c.ofSource, sample.FromMemory: 0} {
			if n, bytes := c.counts[from].Reads.Load(), c.counts[from].Bytes.Load(); n != want || bytes != 3000*want {
				t.Errorf("%s: %d reads of %d bytes from origin %d, want %d", c.name, n, bytes, from, want)
			}
		}
	}
}

// TestLogfileIsDropped: a sample's Logfile is dropped after its location was looked up. The sample has moved before
// that, and is read at its new location, not from the source.
func TestLogfileIsDropped(t *testing.T) {
	var moves func() *logfile.Logfile
	b, l := newBed(t, 4, 4, fetch.Options{Logfile: func(int) *logfile.Logfile { return moves() }})
	from, drops := b.Locations.Get(2), 0
	b.Locations.Set(2, b.Locations.At(1, 0, 0)) // in a Logfile that no longer exists
	moves = func() *logfile.Logfile {
		if b.Locations.Get(2) == from {
			return l
		}
		b.Locations.Set(2, from)
		drops++
		return nil
	}
	extents, got, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{2})
	if err != nil {
		t.Fatal(err)
	}
	if reads := b.Fetcher.Stats.Reads[sample.FromSource].Reads.Load(); drops != 1 || reads != 0 || got[0].From == sample.FromSource || !b.Is(2, got[0].Data) {
		t.Errorf("%d Logfiles dropped, %d reads from the source, want 1 and none; right bytes: %v", drops, reads, b.Is(2, got[0].Data))
	}
	for _, x := range extents {
		b.Staging.Drop(x)
	}
}
