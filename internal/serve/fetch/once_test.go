package fetch_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// TestLargeCopiesTakeTurns: large samples that came to the log while their reads of the source waited are copied from it one after another, because each copy
// takes memory that nothing counts.
func TestLargeCopiesTakeTurns(t *testing.T) {
	const n, size = 4, 2 << 20
	io := fetchtest.OpenIO(t)
	b := &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: []uint32{size, size, size, size}, Block: 64 << 10, Log: logfile.Options{IO: io, Deadline: time.Hour},
		Fetch: fetch.Options{LogTimeout: time.Hour, Peers: &twoPeers{}}, Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 8 << 20}})}
	t.Cleanup(func() { blockio.Inject(io, nil) })
	l := b.Begin(0, []uint64{0, n + 1}, n*size/(64<<10)+8)
	for i := range sample.Index(n) {
		b.Fill(l, 0, i)
	}
	if err := errors.Join(l.WriteTails(t.Context()), l.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	var bytes atomic.Int64 // that reads have asked for
	began := make(chan struct{}, 1000)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write || op.Buf == nil {
			return blockio.Fault{}
		}
		bytes.Add(int64(len(op.Buf)))
		began <- struct{}{}
		return blockio.Fault{Hold: hold}
	})
	var reading sync.WaitGroup
	for i := range sample.Index(n) {
		reading.Go(func() {
			dst := make([]byte, size)
			if from, _, err := b.Fetcher.Source(t.Context(), i, dst); err != nil || from != sample.FromLog {
				t.Errorf("sample %d: from %v, %v", i, from, err)
				return
			}
			b.Is(i, dst)
		})
	}
	<-began
	time.Sleep(20 * time.Millisecond) // the others would begin their reads now
	if got := bytes.Load(); got > size+8192 {
		t.Errorf("%d bytes were read at once for copies of samples of %d", got, size)
	}
	release()
	reading.Wait()
}
