package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/cluster"
	"lcache/internal/cluster/homes"
	"lcache/internal/cluster/peers"
	"lcache/internal/peer"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/source"
)

// fleet is several machines with one source. Requests between them are function calls, which a test can disturb.
type fleet struct {
	d        *dataset
	j        schedule.Job
	machines []*machineOfFleet

	wire *wire // nil: samples arrive at once

	ahead    atomic.Int64 // nanoseconds by which the machines' clocks are ahead, where they put each other aside
	perWrong atomic.Int64 // added to ahead with each sample that has wrong bytes

	mu      sync.Mutex // guards the fields that follow
	disturb func(from, to *machineOfFleet, index sample.Index) wireFault
}

// wireFault is what happens to a sample on its way.
type wireFault int

const (
	noFault   wireFault = iota
	breaks              // the request ends with an error, before the sample
	isLost              // the sample does not come
	isFlipped           // a bit is flipped on the way
	wireFaults
)

// machineOfFleet is one machine of a fleet.
type machineOfFleet struct {
	*Engine
	fleet *fleet
	name  string
	data  *peers.Dataset
	o     Options
	reads *readsOf // of the source, also before a restart
	share Share
	offer cluster.Offer
	isUp  bool

	answering sync.WaitGroup // added to only while isUp
}

var errBroken = errors.New("the connection broke")

// Fetch is the wire of a fleet.
func (m *machineOfFleet) Fetch(ctx context.Context, to string, indices []sample.Index, sink fetch.Sink) error {
	f := m.fleet
	f.mu.Lock()
	other, disturb := f.machines[slices.IndexFunc(f.machines, func(o *machineOfFleet) bool { return o.name == to })], f.disturb
	isUp := other.isUp
	if isUp {
		other.answering.Add(1)
	}
	f.mu.Unlock()
	if !isUp {
		return errBroken
	}
	defer other.answering.Done()
	if f.wire != nil {
		return f.wire.fetch(ctx, m, other, indices, sink)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	other.Home().Bring(ctx, indices, func(b peer.Brought) {
		if b.Release != nil {
			defer b.Release()
		}
		if ctx.Err() != nil {
			return
		}
		bytes := slices.Clone(b.Bytes)
		if disturb != nil {
			switch disturb(m, other, b.Index) {
			case breaks:
				cancel(errBroken)
				return
			case isLost:
				return
			case isFlipped:
				if len(bytes) > 0 {
					bytes[len(bytes)/2] ^= 4
				}
			}
		}
		arrive(sink, b, bytes)
	})
	return context.Cause(ctx)
}

// arrive hands a sample to a sink.
func arrive(sink fetch.Sink, b peer.Brought, bytes []byte) {
	a := fetch.Arrival{Index: b.Index, Absent: b.Why.IsAbsent(), FromSource: b.Why == peer.FromSource, Length: uint32(len(bytes)), Sum: b.Sum}
	if a.Absent {
		sink.Came(a)
	} else if room := sink.Room(a); room != nil {
		copy(room, bytes)
		sink.Came(a)
	}
}

func (m *machineOfFleet) Keeps(i sample.Index) bool                   { return m.data.Keeps(i) }
func (m *machineOfFleet) IsHome(i sample.Index) bool                  { return m.data.IsHome(i) }
func (m *machineOfFleet) Holder(i sample.Index, n int) (string, bool) { return m.data.Holder(i, n) }

// Wrong puts a machine aside that sends wrong bytes. Where a test wants more of them, the clock goes on with each.
func (m *machineOfFleet) Wrong(peer string) {
	m.fleet.ahead.Add(m.fleet.perWrong.Load())
	m.data.Wrong(peer)
}

// newFleet makes caches of the dataset on n machines, each with one rank of a job, and opens them. Each cache has the given budget.
func newFleet(t *testing.T, d *dataset, j schedule.Job, n int, budget int64, with ...func(machine int, o *Options)) *fleet {
	t.Helper()
	f := &fleet{d: d, j: j}
	for i := range n {
		own := j
		own.Ranks = []int{i}
		o, _ := ingested(t, d, ingest.Options{Job: own, NoPrefill: true, Budget: budget})
		m := &machineOfFleet{fleet: f, name: fmt.Sprint("machine ", i), o: o, reads: &readsOf{names: map[string]int{}}}
		m.o.Source = func(s source.Source) source.Source { m.reads.Source = s; return m.reads }
		for _, change := range with {
			change(i, &m.o)
		}
		m.o.Join = func(s Share) Peers {
			m.share = s
			m.offer = cluster.Offer{Cache: s.Cache, Weight: cluster.WeightOf(s.Room, s.Bytes)}
			m.data = peers.New(peers.Options{Manifest: s.Manifest, Padded: s.Padded, Cache: s.Cache, Room: s.Room, Left: s.Left, Held: s.Held, Logger: m.o.Logger, Announce: func(t homes.Threshold) { m.offer.Threshold = t },
				Now: func() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }})
			return m
		}
		f.machines = append(f.machines, m)
	}
	for _, m := range f.machines {
		f.start(t, m)
	}
	f.meet()
	return f
}

func (f *fleet) start(t *testing.T, m *machineOfFleet) {
	t.Helper()
	m.Engine = open(t, m.o)
	f.mu.Lock()
	m.isUp = true
	f.mu.Unlock()
}

// stop closes a machine. The others don't know it before meet.
func (f *fleet) stop(t *testing.T, m *machineOfFleet) {
	t.Helper()
	f.mu.Lock()
	m.isUp = false
	f.mu.Unlock()
	if f.wire != nil {
		f.wire.cut(m)
	}
	m.answering.Wait()
	closeEngine(t, m.Engine)
}

func (f *fleet) close(t *testing.T) {
	for _, m := range f.machines {
		if m.isUp {
			f.stop(t, m)
		}
	}
}

// up returns the machines that are up.
func (f *fleet) up() (up []*machineOfFleet) {
	for _, m := range f.machines {
		if m.isUp {
			up = append(up, m)
		}
	}
	return up
}

// meet gives all machines that are up one roster of them, and then what each of them keeps.
func (f *fleet) meet() {
	up := f.up()
	for range 2 {
		for _, m := range up {
			m.see(up)
		}
	}
}

// see gives a machine a roster, and what the machines in it keep.
func (m *machineOfFleet) see(members []*machineOfFleet) {
	v := cluster.DatasetView{State: cluster.OK, Roster: &cluster.Roster{}}
	for _, other := range members {
		v.Roster.Peers = append(v.Roster.Peers, cluster.RosterPeer{ID: other.share.Cache, Weight: other.offer.Weight})
		v.Peers = append(v.Peers, cluster.PeerView{Offer: other.offer, Self: other == m, Data: other.name, State: cluster.PeerOK, InUse: true})
	}
	slices.SortFunc(v.Roster.Peers, func(a, b cluster.RosterPeer) int { return cmp.Compare(string(a.ID[:]), string(b.ID[:])) })
	m.data.See(v)
}

// read reads an epoch with one rank on each machine that is up, all at once, and checks every byte and the order.
func (f *fleet) read(t *testing.T, epoch int) {
	t.Helper()
	var all sync.WaitGroup
	for rank, m := range f.machines {
		if !m.isUp {
			continue
		}
		all.Go(func() {
			c := attach(t, m.Engine)
			defer c.Disconnected()
			got, err := f.d.readRank(m.Engine, c, epoch, rank, 0)
			if err != nil {
				t.Errorf("%s, epoch %d: %v", m.name, epoch, err)
				return
			}
			if want := f.d.want(t, f.j, epoch, rank); !slices.Equal(got, want) {
				t.Errorf("%s, epoch %d: the order is wrong", m.name, epoch)
			}
		})
	}
	all.Wait()
}

// sourceReads returns how many samples all machines have read from the source so far.
func (f *fleet) sourceReads() (n int) {
	for _, m := range f.machines {
		m.reads.mu.Lock()
		for _, k := range m.reads.names {
			n += k
		}
		m.reads.mu.Unlock()
	}
	return n
}

// fileSizes are those of photos, in small.
func fileSizes(r *rand.Rand, _ int) int { return 5_000 + r.IntN(20_000) }

// waitLong makes a machine of a fleet wait for others and for disks, however busy the test's machine is: after a deadline it would read the source.
func waitLong(_ int, o *Options) {
	o.Patience, o.Timeout, o.PeerTime, o.LogTimeout, o.SourceTimeout = 2*time.Minute, 10*time.Minute, 2*time.Minute, 2*time.Minute, 10*time.Minute
}

// TestClusterReadsTheSourceOnce: three machines with room for a bit more than a third of the dataset each read the source once, together, and never
// again. Each sample is on exactly one of them.
func TestClusterReadsTheSourceOnce(t *testing.T) {
	d := makeDataset(t, 1500, fileSizes)
	for name, budget := range map[string]int64{"a third each": d.total*36/100 + 3<<20, "everything each": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, d, samplerJob(9, 16, 3, true), 3, budget, waitLong)
			defer f.close(t)
			f.read(t, 0)
			read := 1500 - 1500%3
			if n := f.sourceReads(); n < read || n > 1500 {
				t.Errorf("in epoch 0 the source was read %d times, for the %d of 1500 samples that an epoch has", n, read)
			}
			f.read(t, 1)
			f.read(t, 2)
			if n := f.sourceReads(); n > 1500 {
				t.Errorf("after three epochs the source was read %d times for 1500 samples", n)
			}
			copies, want := 0, 0.0
			for _, m := range f.machines {
				want += float64(1500) * m.offer.Threshold.Float() / 3
			}
			for i := range d.bytes {
				for _, m := range f.machines {
					if m.cache.Locations.Get(sample.Index(i)) != 0 {
						copies++
					}
				}
			}
			t.Logf("%d copies of 1500 samples; what the machines keep are %.0f", copies, want)
			if copies < 1490 || copies > int(want*1.05) {
				t.Errorf("the disks have %d copies of 1500 samples, and what the machines keep are %.0f", copies, want)
			}
			for _, m := range f.machines {
				if s := m.Status(); s.Totals.CorruptSamples != 0 || m.fetcher.Stats.PeerCorrupt.Load() != 0 {
					t.Errorf("%s has corrupt samples: %+v", m.name, s.Totals)
				}
			}
		})
	}
}

// TestClusterSurvives: requests break, samples are lost or damaged on their way, and machines stop, come back with what they had, and are left out of the
// roster or not. Each rank gets the right bytes in the right order all the same, and all memory is given back.
func TestClusterSurvives(t *testing.T) {
	first, replay := drawSeed(t)
	for seed := first; seed < first+uint64(testenv.Pick(4, 1)); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testClusterSurvives(t, seed) })
		if replay {
			return
		}
	}
}

func testClusterSurvives(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 38))
	d := makeDataset(t, 900, mixedSizes)
	budget := []int64{0, d.total*45/100 + 4<<20}[r.IntN(2)]
	f := newFleet(t, d, samplerJob(9, 16, 3, true), 3, budget)
	defer f.close(t)
	t.Logf("budget %d", budget)
	var mu sync.Mutex
	f.mu.Lock()
	f.disturb = func(_, _ *machineOfFleet, index sample.Index) wireFault {
		mu.Lock()
		defer mu.Unlock()
		if r.IntN(20) > 0 {
			return noFault
		}
		return wireFault(r.IntN(int(wireFaults)))
	}
	f.mu.Unlock()
	for epoch := range 5 {
		mu.Lock()
		gone, isNoticed, comesBack := f.machines[r.IntN(3)], r.IntN(2) == 0, r.IntN(3) > 0
		mu.Unlock()
		if gone.isUp && epoch > 0 {
			f.stop(t, gone)
		}
		if isNoticed {
			f.meet()
		}
		f.read(t, epoch)
		if comesBack {
			for _, m := range f.machines {
				if !m.isUp {
					f.start(t, m)
				}
			}
			f.meet()
		}
	}
	for _, m := range f.machines {
		if m.isUp && m.Status().Totals.CorruptSamples != 0 {
			t.Errorf("%s found corrupt samples in its log", m.name)
		}
	}
}

// TestPeerMemory: what travels between machines is part of --memory.
func TestPeerMemory(t *testing.T) {
	const peerMemory = 20 << 20
	d := makeDataset(t, 60, fileSizes)
	f := newFleet(t, d, samplerJob(9, 16, 1, true), 1, 0)
	alone := f.machines[0].MemoryLimit() - f.machines[0].Account().Left()
	need := int64(f.machines[0].cache.Sizing.Memory)
	o := f.machines[0].o
	f.close(t)
	o.PeerMemory, o.Memory = peerMemory, need+peerMemory-1
	if e, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--peer-memory") {
		t.Errorf("with a byte too little: %v", err)
		if err == nil {
			closeEngine(t, e)
		}
	}
	o.Memory = 0
	e := open(t, o)
	defer closeEngine(t, e)
	if used := e.MemoryLimit() - e.Account().Left(); used != alone+peerMemory {
		t.Errorf("%d bytes of --memory are planned, want %d more than %d", used, peerMemory, alone)
	}
}
