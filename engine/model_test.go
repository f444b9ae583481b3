package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/importance/state"
	"lcache/internal/plan"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/shuffle"
)

// TestModel drives the engine with random operations from a seed, and compares every answer with the source: batches of several
// ranks in any epoch, requests by index, pushed orders, and jobs without a recipe, which push their orders again after each restart and begin again with other
// seeds. The log is sorted or served in place, at random. Clients
// leave, other jobs run at the same time, the layout changes, restarts use another layout, and the arena is damaged.
// LCACHE_SEED replays one run, LCACHE_MODEL_OPS makes runs longer, LCACHE_MODEL_RUNS makes more of them.
func TestModel(t *testing.T) {
	testenv.Long(t)
	eachModel(t, 400, testenv.Pick(6, 2), (*model).run)
}

// TestNoRequestLosesPatience: if ranks keep step and release all batches, no request loses its patience. This holds after jumps to
// other epochs and back, orders that are pushed again, and restarts in another layout.
func TestNoRequestLosesPatience(t *testing.T) {
	testenv.Long(t)
	eachModel(t, 150, testenv.Pick(3, 1), (*model).runInStep)
}

// eachModel runs some models.
func eachModel(t *testing.T, ops, runs int, run func(m *model, ops int)) {
	if n, err := strconv.Atoi(os.Getenv("LCACHE_MODEL_OPS")); err == nil {
		ops = n
	}
	if n, err := strconv.Atoi(os.Getenv("LCACHE_MODEL_RUNS")); err == nil {
		runs = n
	}
	first, replay := drawSeed(t)
	if replay {
		runs = 1
	}
	for i := range runs {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("LCACHE_SEED=%d", seed), func(t *testing.T) { run(newModel(t, seed), ops) })
	}
}

// model is one run: the engine under test and its expected answers.
type model struct {
	t          *testing.T
	r          *rand.Rand
	d          *dataset
	job        schedule.Job
	opts       Options
	e          *Engine
	clients    []*modelClient
	others     []*otherJob
	drawing    *importantJob // nil: there is none now
	replay     *shuffle.Replay
	at         []deliver.Position // by rank: where it is
	pushed     map[deliver.Position][]sample.Index
	again      *ingest.Options // without a recipe: what may be done before a restart, as each opening by a client does
	told       map[[2]int]bool // without a recipe: epochs and ranks whose orders this server has heard
	jobs       int             // without a recipe: how often a job was started; each start has its own seed
	importance string          // the configuration that it requests
	twinDir    string          // where its twin has its file
	twin       *state.State    // of the job with importance
	twinOf     *important      // that it goes with
	log        []string
	damaged    bool

	served // by the job with importance
}

type modelClient struct {
	c    *deliver.Client
	held []*deliver.Batch
}

func newModel(t *testing.T, seed uint64) *model {
	r := rand.New(rand.NewPCG(seed, 1))
	m := &model{t: t, r: r, twinDir: t.TempDir(), served: served{promises: map[int]*promise{}}}
	compress, content := "", noisy
	if r.IntN(3) == 0 {
		compress, content = "lz4", mostlyWords
	}
	m.d = makeDatasetOf(t, 100+r.IntN(900), func(_ *rand.Rand, i int) int {
		switch r.IntN(20) {
		case 0:
			return 0
		case 1:
			return 128<<10 - 1 + r.IntN(3)
		case 2:
			return r.IntN(400 << 10)
		}
		return r.IntN(12_000)
	}, content)
	world := []int{1, 2, 3, 8}[r.IntN(4)]
	m.job = samplerJob(3+r.IntN(6), 1+r.IntN(40), world, r.IntN(2) == 0)
	in := ingest.Options{Job: m.job, Block: 128 << 10, Memory: []int64{200 << 20, 0}[r.IntN(2)], NoPrefill: r.IntN(3) == 0, Compress: compress,
		Layout: []string{cache.LayoutLog, cache.LayoutStatic}[r.IntN(2)]}
	if f := []float64{1, 1, 0.5, 0.1}[r.IntN(4)]; f < 1 {
		in.Budget = int64(f*float64(m.d.total)) + 6<<20
	}
	if r.IntN(3) == 0 {
		in.Job = schedule.Job{World: world}
		m.again = &in
	}
	m.opts, _ = ingested(t, m.d, in)
	in.Dirs, in.NoPrefill = m.opts.Dirs, true
	m.opts.Patience = time.Duration(1+r.IntN(50)) * time.Millisecond
	m.opts.LateEpoch = time.Duration(50+r.IntN(500)) * time.Millisecond
	m.opts.Timeout = 20 * time.Second
	choices := rand.New(rand.NewPCG(seed, 2)) // of its own: how often the question comes is a matter of time
	m.opts.Begin = func(plan.Beginning) plan.Choice {
		return []plan.Choice{plan.Wait, plan.Sort, plan.InPlace}[choices.IntN(3)]
	}
	m.reseed()
	m.at = make([]deliver.Position, world)
	for rank := range m.at {
		m.at[rank].Rank = rank
	}
	return m
}

// reseed computes the orders of the job's seed.
func (m *model) reseed() {
	var err error
	m.replay, err = shuffle.New(shuffle.Spec{Recipe: m.job.Recipe, Samples: len(m.d.bytes), Seed: m.job.Seed, BatchSize: m.job.BatchSize, World: m.job.World, DropLast: m.job.DropLast})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.log[max(0, len(m.log)-30):] {
		m.t.Log(line)
	}
	if strings.Contains(fmt.Sprintf(format, args...), "waited") {
		stacks := make([]byte, 1<<20)
		m.t.Logf("%+v\n%s", m.e.Status(), stacks[:runtime.Stack(stacks, true)])
	}
	m.t.Fatalf(format, args...)
}

func (m *model) run(ops int) {
	m.start()
	for range ops {
		switch p := m.r.IntN(100); {
		case p < 50:
			m.batch(m.r.IntN(len(m.at)))
		case p < 57:
			m.other()
		case p < 62:
			m.important()
		case p < 78:
			m.get()
		case p < 86:
			m.release()
		case p < 90:
			m.jump()
		case p < 91:
			m.beginAgain()
		case p < 93:
			m.push()
		case p < 96:
			m.leave()
		case p < 98:
			m.damage()
		default:
			m.restart()
		}
	}
	m.checkHeld()
	m.stop()
}

// runInStep lets one client read all ranks, a batch of each in turn. No rank begins an epoch before all have ended the one before.
func (m *model) runInStep(ops int) {
	m.opts.Patience, m.opts.LateEpoch, m.opts.Timeout = 20*time.Second, 20*time.Second, time.Minute
	waits := func(ask func()) {
		began := time.Now()
		ask()
		m.checkHeld()
		if took := time.Since(began); took > 10*time.Second {
			m.fail("it waited %v", took)
		}
	}
	m.start()
	for range ops {
		switch p := m.r.IntN(100); {
		case p < 75:
			steps := 1 + m.r.IntN(8)
			if p < 20 {
				steps = 60
			}
			for range steps {
				behind := slices.MinFunc(m.at, func(a, b deliver.Position) int { return cmp.Compare(a.Epoch, b.Epoch) }).Epoch
				for rank := range m.at {
					if m.at[rank].Epoch == behind { // orders that are pushed may have different lengths: a rank that is done with an epoch waits for the others
						waits(func() { m.batch(rank) })
					}
				}
			}
		case p < 82:
			waits(m.get)
		case p < 90:
			at := deliver.Position{Epoch: m.r.IntN(m.job.Epochs)}
			if at.Epoch != m.at[0].Epoch { // samples that an epoch leaves out may still be requested
				at.Batch = m.r.IntN(5)
			}
			m.note("jump to epoch %d", at.Epoch)
			for rank := range m.at {
				m.at[rank].Epoch, m.at[rank].Batch = at.Epoch, at.Batch
			}
		case p < 92:
			m.beginAgain()
		case p < 95:
			m.push()
		case p < 97:
			m.leave()
		case p < 98:
			m.e.mu.Lock()
			inPlace := !m.e.relayout.inPlace
			m.e.changeLayout(inPlace)
			m.e.mu.Unlock()
			m.note("change the layout: in place %v", inPlace)
		default:
			m.restart()
		}
	}
	m.stop()
}

func (m *model) start() {
	m.note("open with layout %q", m.opts.Layout)
	m.e = open(m.t, m.opts)
	m.pushed, m.told = map[deliver.Position][]sample.Index{}, map[[2]int]bool{}
	m.clients = nil
	for range 1 + m.r.IntN(3) {
		m.clients = append(m.clients, &modelClient{c: attach(m.t, m.e)})
	}
}

func (m *model) stop() {
	m.leaveImportant()
	m.closeTwin()
	for _, o := range m.others {
		o.leave()
	}
	m.others = nil
	s := m.e.Status()
	if m.e.cache.Sizing.Budget > 0 {
		if du := used(m.t, m.opts.Dirs); du > s.Cache.BudgetBytes {
			m.fail("%d bytes on disk, the budget is %d", du, s.Cache.BudgetBytes)
		}
	}
	if s.Jobs[0].CorruptSamples != 0 && !m.damaged {
		m.fail("%d samples count as corrupt, nothing was damaged", s.Jobs[0].CorruptSamples)
	}
	closeEngine(m.t, m.e)
}

func (m *model) client() *modelClient { return m.clients[m.r.IntN(len(m.clients))] }

// want returns the expected samples of a position; nil past the end.
func (m *model) want(at deliver.Position) []sample.Index {
	if batch, ok := m.pushed[at]; ok {
		return batch
	}
	order, err := m.replay.Rank(at.Epoch, at.Rank, nil)
	if err != nil {
		m.fail("replay: %v", err)
	}
	from := at.Batch * m.job.BatchSize
	if from >= len(order) {
		return nil
	}
	return order[from:min(from+m.job.BatchSize, len(order))]
}

// batch requests a rank's next batch.
func (m *model) batch(rank int) {
	at := m.at[rank]
	if at.Epoch >= m.job.Epochs {
		m.at[rank].Epoch, m.at[rank].Batch = 0, 0
		return
	}
	if m.hasPush(at.Epoch, rank) && m.pushed[at] == nil {
		m.at[rank].Epoch, m.at[rank].Batch = at.Epoch+1, 0
		return
	}
	mc := m.client()
	if m.again != nil {
		m.tell(at.Epoch)
	}
	m.note("chunk %+v", at)
	b, err := mc.c.Chunk(context.Background(), at.Epoch, at.Rank, at.Batch)
	if errors.Is(err, io.EOF) {
		if want := m.want(at); want != nil && !m.hasPush(at.Epoch, rank) {
			m.fail("%+v: the end, want %d samples", at, len(want))
		}
		m.at[rank].Epoch, m.at[rank].Batch = at.Epoch+1, 0
		return
	}
	if err != nil {
		m.fail("%+v: %v", at, err)
	}
	if want := m.want(at); !slices.Equal(b.Indices, want) {
		m.fail("%+v: got indices %v, want %v", at, b.Indices, want)
	}
	m.keep(mc, b)
	m.at[rank].Batch++
}

// tell pushes the orders that the model replays for an epoch, and sometimes for the next, unless others have pushed them.
func (m *model) tell(epoch int) {
	for epoch := epoch; epoch < min(epoch+1+m.r.IntN(2), m.job.Epochs); epoch++ {
		for rank := range m.at {
			if m.told[[2]int{epoch, rank}] {
				continue
			}
			order, err := m.replay.Rank(epoch, rank, nil)
			if err != nil {
				m.fail("replay: %v", err)
			}
			m.note("tell epoch %d rank %d", epoch, rank)
			if err := m.e.Push(schedule.Pusher{Pid: os.Getpid()}, epoch, rank, slices.Collect(slices.Chunk(order, m.job.BatchSize))); err != nil {
				m.fail("push: %v", err)
			}
			m.told[[2]int{epoch, rank}] = true
		}
	}
}

func (m *model) hasPush(epoch, rank int) bool {
	_, ok := m.pushed[deliver.Position{Epoch: epoch, Rank: rank}]
	return ok
}

func (m *model) get() {
	mc := m.client()
	want := make([]sample.Index, m.r.IntN(30))
	for i := range want {
		want[i] = m.r.Uint32N(uint32(len(m.d.bytes)))
	}
	m.note("get %v", want)
	var at *deliver.Position
	if m.r.IntN(2) == 0 {
		p := m.at[m.r.IntN(len(m.at))]
		if p.Epoch < m.job.Epochs {
			at = &p
		}
	}
	b, err := mc.c.Get(context.Background(), want, at)
	if err != nil {
		m.fail("get %d samples: %v", len(want), err)
	}
	m.keep(mc, b)
}

// keep checks a batch and holds it for a while. Held bytes must not change.
func (m *model) keep(mc *modelClient, b *deliver.Batch) {
	if err := m.d.check(m.e, b); err != nil {
		m.fail("%v", err)
	}
	mc.held = append(mc.held, b)
	if len(mc.held) > 3 {
		m.drop(mc, 0)
	}
	for _, mc := range m.clients { // all of them together leave room in one piece
		for m.heldBytes() > m.e.staging.SideBytes()/3 && len(mc.held) > 0 {
			m.drop(mc, 0)
		}
	}
}

// heldBytes returns how many bytes of samples clients hold.
func (m *model) heldBytes() (n int64) {
	for _, mc := range m.clients {
		for _, b := range mc.held {
			for _, length := range b.Lengths {
				n += int64(length)
			}
		}
	}
	return n
}

func (m *model) drop(mc *modelClient, i int) {
	if err := m.d.check(m.e, mc.held[i]); err != nil {
		m.fail("a batch that was held: %v", err)
	}
	mc.c.Release(mc.held[i].Lease)
	mc.held = slices.Delete(mc.held, i, i+1)
}

func (m *model) release() {
	if mc := m.client(); len(mc.held) > 0 {
		m.drop(mc, m.r.IntN(len(mc.held)))
	}
}

func (m *model) checkHeld() {
	for _, mc := range m.clients {
		for len(mc.held) > 0 {
			m.drop(mc, 0)
		}
	}
}

// jump moves a rank, or all of them, somewhere else.
func (m *model) jump() {
	epoch := m.r.IntN(m.job.Epochs)
	rank := m.r.IntN(len(m.at))
	for r := range m.at {
		if r == rank || m.r.IntN(2) == 0 {
			m.at[r].Epoch, m.at[r].Batch = epoch, m.r.IntN(5)
		}
	}
	m.note("jump to epoch %d", epoch)
}

// beginAgain makes a job begin again in its first epoch. A job without a recipe takes another seed, and pushes its orders as it comes to them.
func (m *model) beginAgain() {
	for rank := range m.at {
		m.at[rank].Epoch, m.at[rank].Batch = 0, 0
	}
	if m.again == nil {
		m.note("begin again")
		return
	}
	m.jobs++
	m.job.Seed = strconv.Itoa(100 + m.jobs)
	m.note("begin again with seed %s", m.job.Seed)
	m.reseed()
	clear(m.pushed)
	clear(m.told)
}

// push gives one rank, or all, an order of its own for an epoch.
func (m *model) push() {
	epoch := m.r.IntN(m.job.Epochs)
	for rank := range m.at {
		if m.r.IntN(3) == 0 {
			continue
		}
		m.note("push epoch %d rank %d", epoch, rank)
		var batches [][]sample.Index
		for range m.r.IntN(6) {
			batch := make([]sample.Index, 1+m.r.IntN(20))
			for i := range batch {
				batch[i] = m.r.Uint32N(uint32(len(m.d.bytes)))
			}
			batches = append(batches, batch)
		}
		if len(batches) == 0 {
			continue
		}
		if err := m.e.Push(schedule.Pusher{Pid: os.Getpid()}, epoch, rank, batches); err != nil {
			m.fail("push: %v", err)
		}
		m.told[[2]int{epoch, rank}] = true
		for at := range m.pushed {
			if at.Epoch == epoch && at.Rank == rank {
				delete(m.pushed, at)
			}
		}
		for b, batch := range batches {
			m.pushed[deliver.Position{Epoch: epoch, Rank: rank, Batch: b}] = batch
		}
	}
}

// leave ends a client's session and begins another.
func (m *model) leave() {
	i := m.r.IntN(len(m.clients))
	for len(m.clients[i].held) > 0 {
		m.drop(m.clients[i], 0)
	}
	m.clients[i].c.Disconnected()
	m.clients[i] = &modelClient{c: attach(m.t, m.e)}
}

// damage overwrites some of the arena behind the engine's back, past the page cache as the engine does: dirty pages under direct
// writes would make the next fdatasync fail.
func (m *model) damage() {
	path := filepath.Join(m.opts.Dirs[0], "arena")
	flags := os.O_RDWR
	if m.e.cache.IO.Direct() {
		flags |= syscall.O_DIRECT
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		m.fail("%v", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		m.fail("%v", err)
	}
	junk, err := blockio.Alloc(4096 * (1 + m.r.IntN(4)))
	if err != nil {
		m.fail("%v", err)
	}
	defer blockio.Free(junk)
	off := m.r.Int64N((st.Size()-int64(len(junk)))/4096) * 4096
	m.note("damage %d bytes at %d", len(junk), off)
	if _, err := f.WriteAt(junk, off); err != nil {
		m.fail("%v", err)
	}
	m.damaged = true
}

func (m *model) restart() {
	m.checkHeld()
	m.stop()
	m.note("restart")
	for rank := range m.at {
		// Pushed orders are lost with the server: begin an epoch that the recipe has.
		m.at[rank].Batch = 0
	}
	if m.r.IntN(3) == 0 { // samples that stay where they are can be moved on from there, and the reverse
		m.opts.Layout = []string{cache.LayoutLog, cache.LayoutStatic}[m.r.IntN(2)]
	}
	if m.again != nil && m.r.IntN(2) == 0 {
		m.note("ingest")
		ingested(m.t, m.d, *m.again)
	}
	m.start()
}
