package engine

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/peer"
	"lcache/internal/testenv"
	"lcache/sample"
)

// slowDisk lets each read of a disk begin only when the one before it has had its time.
type slowDisk struct {
	mu   sync.Mutex // guards the field that follows
	free time.Time
}

// inject slows the disk down: a read takes some time, and more for its bytes.
func (s *slowDisk) inject(io *blockio.IO, each time.Duration, rate float64) {
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write || op.Buf == nil {
			return blockio.Fault{}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if now := time.Now(); s.free.Before(now) {
			s.free = now
		}
		s.free = s.free.Add(each + time.Duration(float64(len(op.Buf))/rate*float64(time.Second)))
		hold := make(chan struct{})
		time.AfterFunc(time.Until(s.free), func() { close(hold) })
		return blockio.Fault{Hold: hold}
	})
}

// TestClusterBusyHome: a home whose disk works, but needs longer than a peer may be silent, is not late: neither for a large sample nor for a consumer whose
// requests come after those of another one.
func TestClusterBusyHome(t *testing.T) {
	if !testenv.Timed() {
		t.Skip("a machine that is busy with other tests is late")
	}
	fetchAll := func(t *testing.T, address string, samples int, lists ...[]sample.Index) {
		c := peer.NewClient(sample.Fingerprint{1}, samples, peer.ClientOptions{})
		defer c.Close()
		var all sync.WaitGroup
		for _, l := range lists {
			all.Go(func() {
				if missing, err := c.Fetch(t.Context(), address, l, dropped{}); missing != 0 || err != nil {
					t.Errorf("%d of %d samples are missing, %v", missing, len(l), err)
				}
			})
		}
		all.Wait()
	}
	home := func(t *testing.T, d *dataset, o func(int, *Options)) (*machineOfFleet, string) {
		f := newFleet(t, d, samplerJob(9, 4, 1, true), 1, 0, o)
		t.Cleanup(func() { f.close(t) })
		f.read(t, 0)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := peer.Serve(l, peer.ServerOptions{Stream: func() int64 { return 128 << 20 }}) // the home is asked for 256 samples at once, as if they were small
		t.Cleanup(server.Close)
		server.Add(sample.Fingerprint{1}, f.machines[0].Home())
		return f.machines[0], l.Addr().String()
	}
	t.Run("large samples", func(t *testing.T) {
		d := makeDatasetOf(t, 4, func(*rand.Rand, int) int { return 40 << 20 }, func(*rand.Rand, int, []byte) {})
		m, address := home(t, d, func(_ int, o *Options) { o.PeerMemory = 64 << 20 })
		new(slowDisk).inject(m.cache.IO, 0, 20<<20) // 2 s each
		fetchAll(t, address, len(d.bytes), []sample.Index{0})
	})
	t.Run("another consumer first", func(t *testing.T) {
		d := makeDataset(t, 1600, func(*rand.Rand, int) int { return 70_000 }) // few reads have two of them
		m, address := home(t, d, func(_ int, o *Options) { o.PeerMemory = 4 << 20 })
		new(slowDisk).inject(m.cache.IO, time.Second/300, 1<<30)
		list := func(from, n int) (all []sample.Index) {
			for i := range n {
				all = append(all, sample.Index(from+i))
			}
			return all
		}
		before := m.cache.Store.Stats().BlockReads
		var first sync.WaitGroup
		first.Go(func() {
			fetchAll(t, address, len(d.bytes), list(0, 256), list(256, 256), list(512, 256), list(768, 256), list(1024, 256))
		})
		for end := time.Now().Add(time.Minute); m.cache.Store.Stats().BlockReads < before+50; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the first consumer's samples are not read")
			}
		}
		fetchAll(t, address, len(d.bytes), list(1280, 256))
		first.Wait()
	})
}
