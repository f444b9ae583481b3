package engine

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/peer"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestClusterBitsFlipped: bits are flipped between machines, and in what their disks return. No wrong byte arrives.
func TestClusterBitsFlipped(t *testing.T) {
	want := testenv.Pick(300, 60)
	if n, err := strconv.Atoi(os.Getenv("LCACHE_FLIPS")); err == nil {
		want = n
	}
	seed, _ := drawSeed(t)
	t.Logf("LCACHE_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	var mu sync.Mutex // guards r
	bad := &ailing{to: forever, fault: func(op *blockio.Op) blockio.Fault {
		mu.Lock()
		defer mu.Unlock()
		if op.Write || r.IntN(4) > 0 {
			return blockio.Fault{}
		}
		return blockio.Fault{Flip: 1 + r.IntN(8*4096)}
	}}
	d := makeDataset(t, 600, fileSizes)
	f := newFleet(t, d, samplerJob(100_000, 16, 3, true), 3, d.total*40/100+4<<20, func(_ int, o *Options) { o.IO.Inject = bad.inject })
	f.wire = newWire(t, seed)
	f.wire.change(weather{flipped: 400})
	f.perWrong.Store(int64(time.Minute)) // else three flips put a machine aside
	defer f.close(t)
	between := func() int {
		f.wire.mu.Lock()
		defer f.wire.mu.Unlock()
		return f.wire.counts.flipped
	}
	for epoch := 0; between()+int(bad.faulted.Load()) < want && !t.Failed(); epoch++ {
		f.read(t, epoch)
	}
	bad.end()
	t.Logf("%d flips between machines and %d of disks", between(), bad.faulted.Load())
	if bad.faulted.Load() == 0 || between() == 0 {
		t.Error("one of both kinds did not happen")
	}
}

// TestClusterPutsAside: a machine whose samples all have wrong bytes is asked for nothing after some of them, and again a minute later.
func TestClusterPutsAside(t *testing.T) {
	d := makeDataset(t, 600, fileSizes)
	f := newFleet(t, d, samplerJob(9, 16, 3, true), 3, d.total*40/100+4<<20)
	defer f.close(t)
	bad := f.machines[2]
	var isWell atomic.Bool
	var sent atomic.Int64
	f.mu.Lock()
	f.disturb = func(_, of *machineOfFleet, _ sample.Index) wireFault {
		if of != bad {
			return noFault
		}
		sent.Add(1)
		if isWell.Load() {
			return noFault
		}
		return isFlipped
	}
	f.mu.Unlock()
	f.read(t, 0)
	f.read(t, 1)
	wrong := sent.Load()
	f.read(t, 2)
	if n := sent.Load(); wrong < 3 || n != wrong {
		t.Errorf("a machine that sends wrong bytes was asked for %d samples in two epochs, and for %d in the next one", wrong, n-wrong)
	}
	isWell.Store(true)
	f.ahead.Add(int64(time.Minute))
	f.read(t, 3) // much of it was read ahead from the source
	f.read(t, 4)
	if n := sent.Load(); n == wrong {
		t.Error("a minute later the machine is not asked again")
	}
}

// TestClusterHomeFails: the disk of one machine fails, at once or after a while. The others get its samples all the same, and it is over no budget.
func TestClusterHomeFails(t *testing.T) {
	d := makeDataset(t, 400, fileSizes)
	for _, f := range []fault{
		{name: "EIO", fault: blockio.Fault{Err: syscall.EIO}}, {name: "ENOSPC", fault: blockio.Fault{Err: syscall.ENOSPC}}, {name: "read-only", fault: blockio.Fault{Err: syscall.EROFS}},
	} {
		for _, from := range []int64{1, 12} {
			t.Run(f.name+" from "+strconv.FormatInt(from, 10), func(t *testing.T) {
				bad := &ailing{from: from, to: forever, fault: func(op *blockio.Op) blockio.Fault {
					if !op.Write && f.name != "EIO" { // what is there can be read
						return blockio.Fault{}
					}
					return f.fault
				}}
				fl := newFleet(t, d, samplerJob(9, 16, 3, true), 3, d.total*40/100+4<<20, func(machine int, o *Options) {
					if machine == 1 {
						o.IO.Inject = bad.inject
					}
				})
				defer fl.close(t)
				defer bad.end()
				for epoch := range 3 {
					fl.read(t, epoch)
				}
				if bad.faulted.Load() == 0 {
					t.Error("the disk did not fail")
				}
				for _, m := range fl.machines {
					if n := m.Status().Totals.SkippedSamples; n != 0 {
						t.Errorf("%s skipped %d samples", m.name, n)
					}
				}
			})
		}
	}
}

// TestDisagreeingRosters: each machine leaves another one out. A sample is asked for twice at most, by the machine whose rank reads it, and nobody passes a
// request on.
func TestDisagreeingRosters(t *testing.T) {
	d := makeDataset(t, 600, fileSizes)
	j := samplerJob(1, 16, 3, true)
	f := newFleet(t, d, j, 3, 0)
	f.wire = newWire(t, 1)
	defer f.close(t)
	for i, m := range f.machines {
		m.see([]*machineOfFleet{m, f.machines[(i+1)%3]})
	}
	f.read(t, 0)
	reads := map[string][]sample.Index{}
	for rank, m := range f.machines {
		reads[m.name] = d.want(t, j, 0, rank)
	}
	f.wire.mu.Lock()
	defer f.wire.mu.Unlock()
	lists := map[way]int{} // to nobody in particular
	for on, n := range f.wire.asked {
		lists[way{from: on.from, index: on.index}] += n
	}
	if len(lists) == 0 {
		t.Error("nothing was asked for")
	}
	for on, n := range lists {
		if n > 2 || !slices.Contains(reads[on.from], on.index) {
			t.Errorf("%s asked %d times for sample %d, which its rank reads: %v", on.from, n, on.index, slices.Contains(reads[on.from], on.index))
		}
	}
}

// TestConsumerKilled: the connection of a consumer ends while samples are on their way to it, after any number of bytes. When the engine closes, nothing is held for it.
func TestConsumerKilled(t *testing.T) {
	d := makeDataset(t, 400, fileSizes)
	f := newFleet(t, d, samplerJob(9, 16, 1, true), 1, 0)
	defer f.close(t)
	f.read(t, 0)
	home := f.machines[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := peer.Serve(l, peer.ServerOptions{})
	defer server.Close()
	seed, _ := drawSeed(t)
	r := rand.New(rand.NewPCG(seed, 5))
	t.Logf("LCACHE_SEED=%d", seed)
	all := make([]sample.Index, len(d.bytes))
	for i := range all {
		all[i] = sample.Index(i)
	}
	for range testenv.Pick(20, 5) {
		if !server.Add(sample.Fingerprint{1}, home.Home()) {
			t.Fatal("the dataset is served already")
		}
		cut := cutAfter(t, l.Addr().String(), r.Int64N(d.total))
		c := peer.NewClient(sample.Fingerprint{1}, len(all), peer.ClientOptions{})
		if _, err := c.Fetch(t.Context(), cut.String(), all, dropped{}); err == nil {
			t.Error("all samples came over a connection that ends before")
		}
		c.Close()
		over := make(chan struct{})
		go func() { // it waits for the streams
			defer close(over)
			server.Remove(sample.Fingerprint{1})
		}()
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Fatal("the stream of a consumer that is gone does not end")
		}
	}
}

// dropped is a Sink that needs no bytes.
type dropped struct{}

func (dropped) Room(peer.Piece) []byte { return nil }
func (dropped) Came(peer.Piece)        {}

// cutAfter passes on one connection, and resets both sides after some bytes from the server.
func cutAfter(t *testing.T, address string, most int64) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var passing sync.WaitGroup
	var open atomic.Pointer[[2]net.Conn]
	end := func() {
		l.Close()
		if both := open.Load(); both != nil {
			for _, c := range both {
				c.(*net.TCPConn).SetLinger(0) // a reset, as of a process that is killed
				c.Close()
			}
		}
	}
	t.Cleanup(func() { end(); passing.Wait() })
	passing.Go(func() {
		defer end()
		near, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
			near.Close()
			return
		}
		open.Store(&[2]net.Conn{near, far})
		// The wrappers hide ReadFrom, which would splice: Go keeps the pipes of that open for later, and they look leaked.
		passing.Go(func() { io.Copy(struct{ io.Writer }{far}, near) })
		io.CopyN(struct{ io.Writer }{near}, far, most)
	})
	return l.Addr()
}
