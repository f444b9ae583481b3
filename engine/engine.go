// Package engine is the state machine of a dataset's job: which epoch's Logfile is being read, which one is being filled, which
// segment comes next, and when the two change roles. It wires the other packages together and moves no bytes itself.
//
// In the log layout one mover takes the pass over segments and lets both Logfiles take turns; in the static layout, where samples stay where they
// were packed, there is neither, and a reader ahead of each rank brings its coming chunks by place.
//
// Ingest makes a cache: it lists the source, fixes the geometry, and fills the Logfile of the first epoch. Open serves one: an
// Engine owns everything that belongs to it, its goroutines included, and Close ends them in order. Verify checks one. Core is
// what all three have in common. An Engine's methods may be called concurrently.
package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"lcache/cache"
	"lcache/cores"
	"lcache/deliver"
	"lcache/fetch"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
	"lcache/schedule"
	"lcache/source"
	"lcache/staging"
	"lcache/usage"

	"github.com/dustin/go-humanize"
)

// Options of Open.
type Options struct {
	Dirs    []string
	Memory  int64 // bytes; 0: what is needed, at most a quarter of the machine's
	IO      cache.IO
	Layout  string // "" or "auto", "log", "static"
	Shared  bool   // users other than this process's may connect
	OnError string // "", "fail" or "skip": what becomes of a sample that can't be had, an error of its request or a shorter answer
	Logger  *slog.Logger
	Version string

	FollowLinks *bool // whether what was listed through links that leave the source is served; nil: yes, but not if Shared

	// For tests: how long things may take before they count as late. Zero: the defaults of each package.
	Patience, Timeout, LoanTime, BlockTimeout, LogTimeout, SourceTimeout time.Duration
	LateEpoch                                                            time.Duration                     // rule 1's 10 s
	PushBytes                                                            int64                             // that pushed orders may take; 0: by the dataset and the machine
	Source                                                               func(source.Source) source.Source // what to read from instead
	Side                                                                 int                               // bytes of side memory instead of the formula's
}

// An Engine serves one cache.
type Engine struct {
	cache   *cache.Cache
	opts    Options
	started time.Time
	server  string // random, of this run
	staging *staging.Staging
	fetcher *fetch.Fetcher
	ahead   *fetch.Ahead
	reader  *fetch.Reader // in the static layout, where ahead and pass have nothing to do; else nil
	pass    *reorder.Pass
	deliver *deliver.Deliver
	buffers [2][]byte // registered with io: the write buffers of each slot
	scratch []byte    // registered with io: what compressed blocks are read to

	wake     chan struct{} // to the mover
	misses   chan struct{} // to the reader of misses: begin where it says
	ctx      context.Context
	cancel   context.CancelFunc
	mover    sync.WaitGroup
	builders sync.WaitGroup // of lines

	mu sync.Mutex // guards the fields that follow; never held while calling staging or the store
	state
	counts counts

	filling atomic.Pointer[filling] // where what the log lacks goes; nil: nowhere
}

// Open makes a cache ready to serve. Nothing is read before the first request.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if err := cache.CheckLayout(o.Layout); err != nil {
		return nil, err
	}
	switch o.OnError {
	case "", "fail", "skip":
	default:
		return nil, usage.Errorf("on-error %q: give fail or skip", o.OnError)
	}
	if err := cache.CheckLinks(o.Dirs, o.links()); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c, err := cache.Open(cache.Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, Layout: o.Layout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	if err := c.HoldToLinks(o.links()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if o.Source != nil {
		c.Source.Source = o.Source(c.Source.Source)
	}
	e, err := newEngine(c, o, nil, nil)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return e, nil
}

func (o Options) links() cache.Links { return cache.Links{Shared: o.Shared, Follow: o.FollowLinks} }

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnError == "" {
		o.OnError = "fail"
	}
	if o.LateEpoch == 0 {
		o.LateEpoch = 10 * time.Second
	}
	return o
}

// newEngine makes an Engine of an open core, which stays the caller's if that fails. With forced it re-sorts the log to that order, out
// of the Logfile from, and that is all.
func newEngine(c *cache.Cache, o Options, forced *schedule.Order, from *logfile.Logfile) (*Engine, error) {
	e := &Engine{cache: c, opts: o, started: time.Now(), wake: make(chan struct{}, 1), misses: make(chan struct{}, 1)}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	e.server = hex.EncodeToString(random[:])
	if o.PushBytes > 0 {
		c.Schedule.SetPushLimit(o.PushBytes)
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.assemble(forced, from); err != nil {
		e.cancel()
		return nil, err
	}
	return e, nil
}

// assemble makes the parts, from the memory up, and starts the mover. If a part fails those before it are given back.
func (e *Engine) assemble(forced *schedule.Order, from *logfile.Logfile) (err error) {
	z := e.cache.Sizing
	e.staging, err = staging.New(staging.Options{Samples: e.cache.Manifest.Len(), Align: e.cache.Format.Align, Slots: z.Slots,
		SlotBytes: int(z.Slot), MissBytes: int(z.Miss), SideBytes: cmp.Or(e.opts.Side, int(z.Side)), SpareBytes: int(z.Spare)})
	if err != nil {
		return err
	}
	if err := e.cache.IO.Register(e.staging.Memory()); err != nil {
		e.staging.Close()
		return fmt.Errorf("register the shared memory: %w", err)
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // nothing is under way
			defer cancel()
			err = errors.Join(err, e.dismantle(ctx))
		}
	}()
	if err := e.makeScratch(); err != nil {
		return err
	}
	e.fetcher = fetch.New(fetch.Options{Staging: e.staging, Locations: e.cache.Locations, Manifest: e.cache.Manifest, Sums: e.cache.Sums, Source: e.cache.Source,
		Form: e.cache.Form, PackedBytes: int64(e.cache.Facts().PackedReads()),
		Logfile: e.cache.Logfile, Recovered: e.cache.WasRecovered, Keep: e.fill, LogTimeout: e.opts.LogTimeout, SourceTimeout: e.opts.SourceTimeout, Logger: e.cache.Logger})
	e.ahead = fetch.NewAhead(e.fetcher)
	e.ahead.Skip = e.missSkipped
	e.pass = reorder.New(reorder.Options{Staging: e.staging, Fetcher: e.fetcher, Locations: e.cache.Locations, Sums: e.cache.Sums, Sizes: e.cache.Manifest.Sizes(),
		Form: e.cache.Form, Scratch: e.scratch,
		Align: e.cache.Format.Align, Block: e.cache.Format.Block, Workers: max(2, min(4, cores.N)), BlockTimeout: e.opts.BlockTimeout, Logger: e.cache.Logger})
	window := deliver.Window{Chunk: e.chunk, Asked: e.asked, Coming: e.coming, Starved: e.starved, Delivered: e.delivered}
	if e.cache.IsStatic() {
		window.Coming, window.Starved = e.comingStatic, e.starvedStatic
	}
	e.deliver, err = deliver.New(deliver.Options{Staging: e.staging, Fetcher: e.fetcher, Manifest: e.cache.Manifest, Logger: e.cache.Logger,
		Patience: e.opts.Patience, Timeout: e.opts.Timeout, LoanTime: e.opts.LoanTime, SkipErrors: e.opts.OnError == "skip",
		Window: window})
	if err != nil {
		e.deliver = nil
		return err
	}
	if e.cache.IsStatic() {
		err = e.restoreStatic()
	} else {
		err = e.restore(forced, from)
	}
	if err != nil {
		return err
	}
	if e.cur != nil && e.tgt == nil && e.cur.epoch >= 0 && e.cache.Schedule.IsComplete(e.cur.epoch+1, e.opts.LateEpoch) {
		e.mu.Lock()
		e.prepare(e.cur.epoch + 1)
		e.mu.Unlock()
	}
	if e.cache.IsStatic() {
		e.reader = e.newReader()
	}
	e.mover.Add(2)
	go e.move()
	go e.missLoop()
	return nil
}

// Close ends the requests, the pass and the mover, makes what is in memory durable, and gives everything back, in that order. The
// error is the first that concerns the log; ctx bounds the wait for a disk or source that does not answer. With a [*logfile.HungError] the
// memory stays mapped and the cache locked until the process ends.
func (e *Engine) Close(ctx context.Context) error {
	if err := e.halt(ctx); err != nil {
		// Somebody may still write into staging or read the manifest: leave them mapped, the process is about to end.
		return errors.Join(err, e.cache.Store.Close())
	}
	err := e.cache.Close()
	if late := new(logfile.HungError); errors.As(err, &late) {
		return err
	}
	e.freeLines()
	e.freeScratch()
	e.staging.Close()
	return err
}

// halt ends all that reads and moves, as far as it was made. After an error somebody may still write into staging.
func (e *Engine) halt(ctx context.Context) (err error) {
	if e.deliver != nil {
		e.deliver.Close()
	}
	e.cancel()
	err = logfile.Within(ctx, "what the mover does in "+e.cache.Dirs[0], func() error {
		e.mover.Wait()
		e.builders.Wait()
		if e.ahead != nil {
			e.ahead.Stop()
		}
		if e.reader != nil {
			e.reader.Stop()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if e.pass != nil {
		err = e.pass.Close(ctx)
	}
	if e.fetcher != nil {
		if fetchErr := e.fetcher.Close(ctx); err == nil {
			err = fetchErr
		}
	}
	return err
}

// dismantle gives back what assemble took. The core stays open.
func (e *Engine) dismantle(ctx context.Context) error {
	if err := e.halt(ctx); err != nil {
		return err // somebody may still write into staging: leave it mapped
	}
	for _, mem := range [][]byte{e.staging.Memory(), e.scratch, e.buffers[0], e.buffers[1]} {
		if len(mem) == 0 {
			continue
		}
		if err := e.cache.IO.Unregister(mem); err != nil {
			e.cache.Logger.Warn("unregister memory", "error", err)
		}
	}
	e.freeLines()
	e.freeScratch()
	e.staging.Close()
	return nil
}

func chosen(name, value, from string) cache.Default {
	return cache.Default{Name: name, Value: value, From: from}
}

// Defaults are what Open chose, and why.
func (e *Engine) Defaults() []cache.Default {
	d := []cache.Default{chosen("budget", humanize.Bytes(e.cache.Sizing.Budget), "fixed by ingest")}
	switch {
	case e.opts.Memory != 0:
	case e.cache.Record.Memory != 0:
		d = append(d, chosen("memory", humanize.Bytes(e.cache.Sizing.Memory), "as given to ingest"))
	default:
		d = append(d, chosen("memory", humanize.Bytes(e.cache.Sizing.Memory), "the need by the formula"))
	}
	if o := e.opts.IO; o.Engine == "" || o.Engine == "auto" {
		d = append(d, chosen("io", e.cache.IO.Name(), e.cache.IO.Reason()))
	}
	if e.cache.IsStatic() && e.opts.Layout != cache.LayoutStatic { // log is what everybody expects
		d = append(d, chosen("layout", e.cache.Layout, e.cache.LayoutReason))
	}
	return d
}

// Layout is how samples lie on disk: log or static.
func (e *Engine) Layout() string { return e.cache.Layout }

// MemoryFile is the shared memory, read-only, for clients.
func (e *Engine) MemoryFile() *os.File { return e.staging.File() }

// Names looks up the names of samples: the first ones, as many as take about room bytes in an answer, and at least one.
func (e *Engine) Names(indices []sample.Index, room int) (names []string, err error) {
	for _, index := range indices {
		if int(index) >= e.cache.Manifest.Len() {
			return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("index %d is not in the dataset of %d samples", index, e.cache.Manifest.Len())}
		}
		name, err := e.cache.Manifest.Name(index)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		if room -= 4 + len(name); room < 0 {
			break
		}
	}
	return names, nil
}

// Parts looks up the parts of samples, as Names does their names; nil for one that has none.
func (e *Engine) Parts(indices []sample.Index, room int) (parts [][]sample.Part, err error) {
	for _, index := range indices {
		if int(index) >= e.cache.Manifest.Len() {
			return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("index %d is not in the dataset of %d samples", index, e.cache.Manifest.Len())}
		}
		list := e.cache.Manifest.Parts(index)
		parts = append(parts, list)
		if room -= 4 + 8*len(list); room < 0 {
			break
		}
	}
	return parts, nil
}

// Push takes an order from a client: what a rank will ask for in an epoch, in batches of any sizes. Given before the epoch before
// begins it is laid out, later it only says what Chunk means. A rank may take back what it said by another order for the same epoch.
// While a process reads a rank in its own order, another one's is refused: the first job owns the log. So is an order for which there is no room:
// clients may push as many epochs ahead as PushBytes allows. Where there is a recipe the order holds for the session's own positions; those of
// other sessions mean the recipe's.
func (e *Engine) Push(by schedule.Pusher, epoch, rank int, batches [][]sample.Index) error {
	if err := e.cache.Schedule.Accepts(epoch, rank); err != nil {
		return forClient(err)
	}
	if err := e.own(by.Pid, rank); err != nil {
		return forClient(err)
	}
	changed, replaced, err := e.cache.Schedule.Push(e.ctx, by, epoch, rank, batches, e.spare())
	if err != nil {
		return forClient(err)
	}
	if changed {
		e.reordered(epoch, replaced)
	}
	if e.reader != nil {
		e.reader.Changed(rank, epoch)
	}
	e.nudge()
	return nil
}

// PushBytes is how much memory pushed orders may take.
func (e *Engine) PushBytes() int64 { return e.cache.Schedule.PushLimit() }

// spare tells which pushed orders may be dropped for another one: those of epochs that all ranks have behind them, and of processes that are gone.
func (e *Engine) spare() func(epoch, pid int) bool {
	e.mu.Lock()
	first := e.reading
	for _, r := range e.ranks {
		if !r.asked.IsZero() && time.Since(r.asked) < e.opts.LateEpoch {
			first = min(first, r.at(e.cache.Schedule))
		}
	}
	e.mu.Unlock()
	attached := map[int]bool{}
	return func(epoch, pid int) bool {
		is, known := attached[pid]
		if !known {
			is = e.deliver.Attached(pid)
			attached[pid] = is
		}
		return epoch < first-1 || !is // a rank may ask for the end of the epoch before once more
	}
}

func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
