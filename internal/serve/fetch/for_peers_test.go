package fetch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// TestWorkForPeers: a read of many bytes for another machine excuses that nothing comes for as long as a slow disk needs, and each read that ends counts. A
// read of few bytes, and a read for this machine, excuse nothing.
func TestWorkForPeers(t *testing.T) {
	const large, small = 0, 1
	io := fetchtest.OpenIO(t)
	b := &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: []uint32{24 << 20, 3000}, Block: 1 << 20, Log: logfile.Options{IO: io, Deadline: time.Hour}, Fetch: fetch.Options{LogTimeout: time.Hour},
		Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 32 << 20, PeerBytes: 32 << 20}})}
	t.Cleanup(func() { blockio.Inject(io, nil) })
	l := b.Begin(0, []uint64{0, 3}, 40)
	b.Fill(l, 0, large)
	b.Fill(l, 0, small)
	if err := errors.Join(l.WriteTails(t.Context()), l.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	forPeers := fetch.ForPeers(t.Context())
	// read begins a read that hangs until release.
	read := func(ctx context.Context, index sample.Index) (release func()) {
		began := make(chan struct{})
		hold := fetchtest.HoldReads(t, io, func(n int64) bool {
			if n == 0 {
				close(began)
			}
			return true
		})
		over := make(chan struct{})
		go func() {
			defer close(over)
			extents, got, err := b.Fetcher.FetchAll(ctx, []sample.Index{index})
			if err != nil || got[0].From != sample.FromLog {
				t.Errorf("sample %d: %v from %v", index, err, got)
			}
			for _, x := range extents {
				b.Staging.Drop(x)
			}
		}()
		select {
		case <-began:
		case <-over:
			t.Fatal("the disk was not read")
		}
		return func() { hold(); <-over }
	}
	work := func() (done uint64, waits bool) { return b.Fetcher.WorkForPeers() }

	release := read(t.Context(), large)
	if _, waits := work(); waits {
		t.Error("a read for this machine counts as one for another")
	}
	release()
	if done, _ := work(); done != 0 {
		t.Errorf("%d reads for other machines have ended, want 0", done)
	}
	release = read(forPeers, small)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // 3000 bytes take 0.2 ms
		if _, waits := work(); !waits {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a small read that hangs is waited for")
		}
	}
	release()
	if done, waits := work(); done != 1 || waits {
		t.Errorf("after one read: %d, waits %v", done, waits)
	}
	began := time.Now()
	release = read(forPeers, large)
	if _, waits := work(); !waits && time.Since(began) < 1500*time.Millisecond {
		t.Error("a large read is not waited for")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, waits := work(); !waits {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a large read that hangs is waited for")
		}
	}
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("a read of 24 MiB was waited for only %v", took)
	}
	release()
	if done, waits := work(); done != 2 || waits {
		t.Errorf("after two reads: %d, waits %v", done, waits)
	}
}
