package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/testenv"
	"lcache/sample"
)

// modelCluster is a run of the model test of a cluster: some machines, and some jobs that read on each of them.
type modelCluster struct {
	*fleet
	t     *testing.T
	seed  uint64
	r     *rand.Rand
	jobs  int
	seats map[*machineOfFleet][]*modelSeat
}

// modelSeat is a job on one machine. It goes on after a restart of the machine.
type modelSeat struct {
	*seat
	token        string
	epoch, batch int // read so far
}

// TestClusterModel: 2 to 4 machines read with 1 to 3 jobs, over a network that delays, reorders, loses, damages and breaks. Machines stop in the middle of a read and
// come back, and know of it or not; their rosters disagree for a while. The source is the oracle: each job gets its order and the right bytes, without an
// error and without an endless wait. In the end nothing is held, and the source is not read any longer.
func TestClusterModel(t *testing.T) {
	runs := testenv.Pick(2, 1)
	if n, err := strconv.Atoi(os.Getenv("LCACHE_MODEL_RUNS")); err == nil {
		runs = n
	}
	first, replay := drawSeed(t)
	for seed := first; seed < first+uint64(runs); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testClusterModel(t, seed) })
		if t.Failed() {
			t.Fatalf("LCACHE_SEED=%d", seed)
		}
		if replay && os.Getenv("LCACHE_MODEL_RUNS") == "" {
			return
		}
	}
}

func testClusterModel(t *testing.T, seed uint64) {
	m := &modelCluster{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 14)), seats: map[*machineOfFleet][]*modelSeat{}}
	machines := 2 + m.r.IntN(3)
	m.jobs = 1 + m.r.IntN(3)
	d := makeDataset(t, 300+m.r.IntN(200), mixedSizes)
	budget := []int64{0, d.total*int64(110/machines)/100 + 4<<20, d.total*int64(60/machines)/100 + 4<<20}[m.r.IntN(3)]
	t.Logf("%d machines, %d jobs, budget %d of %d", machines, m.jobs, budget, d.total)
	m.fleet = newFleet(t, d, samplerJob(10_000, 16, machines, true), machines, budget)
	m.wire = newWire(t, seed)
	defer m.close(t)
	for _, machine := range m.machines {
		m.sit(machine)
	}
	for step := range testenv.Pick(14, 8) {
		m.wire.change(weather{delayed: m.r.IntN(600), lost: m.r.IntN(3) * m.r.IntN(60), flipped: m.r.IntN(3) * m.r.IntN(60), breaking: m.r.IntN(2) * m.r.IntN(60), most: 1 + m.r.Uint64N(200)})
		m.step(step)
		if t.Failed() {
			t.FailNow()
		}
	}
	m.wire.change(weather{})
	m.ahead.Add(int64(time.Hour)) // no machine is put aside any longer
	m.startAll()
	m.meet()
	m.settles(budget)
}

// sit lets all jobs join on a machine.
func (m *modelCluster) sit(machine *machineOfFleet) {
	before := m.seats[machine]
	m.seats[machine] = nil
	for k := range m.jobs {
		s := &modelSeat{token: fmt.Sprint("job ", k)}
		if before != nil {
			*s = *before[k]
		}
		s.seat = m.d.join(m.t, machine.Engine, s.token)
		m.seats[machine] = append(m.seats[machine], s)
	}
}

// order is what a job reads on a machine in an epoch.
func (m *modelCluster) order(machine *machineOfFleet, s *modelSeat, epoch int) (order [][]sample.Index) {
	r := rand.New(rand.NewPCG(m.seed+uint64(epoch), uint64(machine.rank())<<8|uint64(s.token[len(s.token)-1])))
	for batch := range slices.Chunk(r.Perm(len(m.d.bytes)), 16) {
		var indices []sample.Index
		for _, i := range batch {
			indices = append(indices, sample.Index(i))
		}
		order = append(order, indices)
	}
	return order
}

// rank is the one that reads on a machine.
func (m *machineOfFleet) rank() int { return slices.Index(m.fleet.machines, m) }

// step reads on all machines at once. Meanwhile something happens.
func (m *modelCluster) step(step int) {
	var reading sync.WaitGroup
	var read atomic.Int64
	up := m.up()
	happens := make(chan struct{}) // closed after some batches
	after := m.r.Int64N(int64(20 * len(up)))
	if after == 0 {
		close(happens)
	}
	var ending sync.Map // machines that stop meanwhile
	for _, machine := range up {
		for _, s := range m.seats[machine] {
			batches := m.r.IntN(40)
			reading.Go(func() {
				for range batches {
					err := m.readBatch(machine, s)
					if _, isEnding := ending.Load(machine); isEnding {
						return
					}
					if err != nil {
						m.t.Errorf("step %d, %s, %s, epoch %d: %v", step, machine.name, s.token, s.epoch, err)
						return
					}
					if read.Add(1) == after {
						close(happens)
					}
				}
			})
		}
	}
	over := make(chan struct{})
	go func() {
		reading.Wait()
		close(over)
	}()
	select {
	case <-happens:
	case <-over:
	}
	switch victim := up[m.r.IntN(len(up))]; m.r.IntN(6) {
	case 0, 1:
		ending.Store(victim, true)
		for _, s := range m.seats[victim] {
			s.leave()
		}
		m.stop(m.t, victim)
		if m.r.IntN(2) == 0 {
			m.meet()
		}
	case 2:
		m.startAll()
		m.meet()
	case 3: // some don't know of each other
		for _, machine := range up {
			machine.see(slices.DeleteFunc(slices.Clone(up), func(o *machineOfFleet) bool { return o != machine && m.r.IntN(3) == 0 }))
		}
	case 4:
		m.meet()
	}
	<-over
	if len(m.up()) == 0 {
		m.startAll()
		m.meet()
	}
}

// startAll starts the machines that are down.
func (m *modelCluster) startAll() {
	for _, machine := range m.machines {
		if !machine.isUp {
			m.start(m.t, machine)
			m.sit(machine)
		}
	}
}

// mostWait is longer than any wait that a fault may cause.
const mostWait = 2 * time.Minute

// readBatch reads the next batch of a job on a machine.
func (m *modelCluster) readBatch(machine *machineOfFleet, s *modelSeat) error {
	if s.orders[s.epoch] == nil {
		s.orders[s.epoch] = m.order(machine, s, s.epoch)
		if err := machine.PushOf(s.number, schedule.Pusher{Pid: os.Getpid(), Session: s.c.Token}, s.epoch, machine.rank(), schedule.Cut(s.orders[s.epoch])); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), mostWait)
	defer cancel()
	got, err := s.c.ChunkAt(ctx, deliver.Position{Job: s.number, Epoch: s.epoch, Rank: machine.rank(), Batch: s.batch})
	if err != nil {
		return err
	}
	defer s.c.Release(got.Lease)
	if !slices.Equal(got.Indices, s.orders[s.epoch][s.batch]) {
		return fmt.Errorf("batch %d: %v, the order is %v", s.batch, got.Indices, s.orders[s.epoch][s.batch])
	}
	if err := m.d.check(machine.Engine, got); err != nil {
		return err
	}
	if s.batch++; s.batch == len(s.orders[s.epoch]) {
		delete(s.orders, s.epoch)
		s.epoch, s.batch = s.epoch+1, 0
	}
	return nil
}

// settles reads all samples on all machines until the source is not needed any longer, if the disks have room for all.
func (m *modelCluster) settles(budget int64) {
	for pass := range 6 {
		before := m.sourceReads()
		var reading sync.WaitGroup
		for _, machine := range m.machines {
			s := m.seats[machine][0]
			reading.Go(func() {
				for epoch := s.epoch + 1; s.epoch <= epoch; { // the rest of an epoch, and a whole one
					if err := m.readBatch(machine, s); err != nil {
						m.t.Errorf("%s at the end: %v", machine.name, err)
						return
					}
				}
			})
		}
		reading.Wait()
		if n := m.sourceReads() - before; m.t.Failed() || n == 0 {
			m.t.Logf("the source was read %d times in all, and %d times in pass %d", m.sourceReads(), n, pass)
			return
		}
	}
	if budget == 0 {
		m.t.Error("the source is read again and again, and each machine has room for everything")
	}
}
