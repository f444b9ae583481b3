// Package engine runs the cache of one dataset while a server has it open. It decides which epoch's Logfile is read, which one is filled, which segment
// comes next, and when the two Logfiles change roles. It connects the other packages, and moves no bytes itself.
//
// In the log layout one goroutine, the mover, scans the segments and lets both Logfiles take turns. It reads the state into a view, decides with a pure
// function, and applies the action. If a rank's order is known, the prefetcher loads the samples that the scan does not. In the static layout, where
// samples stay in place, the prefetcher loads all of them. Package ingest creates the cache that is opened here.
//
// [Open] serves a cache. An [Engine] owns everything that belongs to it, including its goroutines, and Close ends them in order. An Engine's methods may
// be called concurrently.
//
// Locks are taken in this order: Engine.mu; under it the schedule's lock, and deliver's under that; also under Engine.mu the prefetcher's lock, then
// staging's; and the free list's. The lock of a job's lists is taken alone. deliver holds no lock while it calls the window, and staging holds none
// while it calls evictable or members. Under Engine.mu no lock of an importance session is taken. docs/architecture.md has the whole list.
package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lcache/engine/internal/count"
	"lcache/engine/internal/events"
	"lcache/internal/importance/disk"
	"lcache/internal/importance/session"
	"lcache/internal/memquota"
	"lcache/internal/plan"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/mover"
	"lcache/internal/usage"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
	"lcache/source"

	"github.com/dustin/go-humanize"
)

// Options configure Open.
type Options struct {
	Dirs    []string
	Memory  int64 // bytes; 0: the computed minimum, at most a quarter of the machine's memory
	IO      cache.IO
	Layout  string     // "" or "auto", "log", "static"
	Disk    cache.Disk // the devices' speed, as far as it is known; layout "auto" depends on it
	Shared  bool       // other users than this process's may connect
	OnError string     // "", "fail" or "skip": for a sample that can't be read, fail its request, or leave the sample out of the answer
	Logger  *slog.Logger
	Version string
	Remote  source.Remote // options of a network source; they override the recorded ones
	JobsMax int           // how many jobs with tokens are read ahead for, at most; 0: 8

	Join       func(Share) Peers     // connects the open cache with the other machines of a cluster; nil: this machine is alone
	PeerMemory int64                 // bytes of --memory for samples on their way between machines
	Cluster    func() status.Cluster // describes the machines of the cluster; nil: this machine is alone

	sortAtOnce bool // a full log in another order is sorted into the epoch that is read, even if that does not pay

	FollowLinks *bool // serve files that were listed through links that leave the source; nil: yes, except if Shared

	knobs
}

// knobs are for tests. The zero value of each selects the package's default.
type knobs struct {
	Patience, Timeout, LeaseTime, BlockTimeout, LogTimeout, SourceTimeout, PeerTime time.Duration                     // deadlines after which an operation counts as late
	LateEpoch                                                                       time.Duration                     // rule 1's 10 s
	Now                                                                             func() time.Time                  // instead of time.Now
	PushBytes                                                                       int64                             // memory for pushed orders; 0: computed from the dataset and the machine
	Source                                                                          func(source.Source) source.Source // wraps the source
	Side                                                                            int                               // bytes of side memory; 0: computed
	Begin                                                                           func(plan.Beginning) plan.Choice  // replaces the rule of package plan
	Relayout                                                                        func(plan.Served) string          // replaces the rule of package plan, for epochs of any length
	LookForEvents                                                                   time.Duration                     // time between two looks
}

// An Engine serves one cache.
type Engine struct {
	cache      *cache.Cache
	keeps      func(sample.Index) bool // the cache's Placement
	opts       Options
	now        func() time.Time // the clock for all decisions
	started    time.Time
	server     string // random, for this run
	mover      *mover.Mover
	staging    *staging.Staging // used by the mover
	fetcher    *fetch.Fetcher   // used by the mover
	scan       *reorder.Scan    // used by the mover
	prefetcher *prefetch.Prefetcher
	peers      Peers // other machines with this dataset; nil: none
	window     *window
	deliver    *deliver.Deliver
	account    *memquota.Account // what --memory leaves for clients
	orders     *memquota.Share   // pushed orders of all jobs, including orders that are being received
	shares     session.Shares    // parts of the account, for importance
	observed   *memquota.Share   // queued observations of all jobs
	disk       *disk.Files       // files of importance

	recordFiles func() string // filesDigest of the manifest, computed once

	wake      chan struct{} // wakes the mover
	ctx       context.Context
	cancel    context.CancelFunc
	loops     sync.WaitGroup // move
	homeReads sync.WaitGroup // reads for peers
	builders  sync.WaitGroup // goroutines that lay out epochs, and other short work
	digests   count.Digester
	events    events.List

	mu      sync.Mutex                   // guards the fields that follow; see the package comment for the order of locks
	jobs    map[int]*job                 // by number
	found   atomic.Pointer[map[int]*job] // a copy of jobs that is never changed
	owner   *job                         // the job whose order the log has
	lastJob int
	ended   []status.Job          // the latest jobs that are over
	states  map[string]*important // importance states, by name
	machine

	importing chan struct{} // a lock: has a value while a job's importance begins, or all of them end; no other lock is held when one is put there

	moving sync.Mutex // held by the mover or a packer while it changes Logfiles; taken before all other locks

	filling  atomic.Pointer[filling]  // appends misses to the log; nil: none
	arrivals atomic.Pointer[arrivals] // keeps what a cluster gives to this machine; nil: this machine is alone
}

// Open opens a cache for serving. It reads no samples before the first request.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if err := cache.CheckLayout(o.Layout); err != nil {
		return nil, err
	}
	switch o.OnError {
	case "", "fail", "skip":
	default:
		return nil, usage.Errorf("on-error %q: give fail or skip", o.OnError)
	}
	if o.Join != nil && o.Layout == cache.LayoutLog {
		return nil, usage.Errorf("--layout log does not work with --cluster yet: leave --layout out, and the cache is served in the static layout")
	}
	if err := cache.CheckLinks(o.Dirs, o.links()); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c, err := cache.Open(cache.Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, Layout: o.Layout, Disk: o.Disk, Remote: o.Remote, Shared: o.Join != nil, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	if err := c.HoldToLinks(o.links()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if o.Source != nil {
		c.Source.Source = o.Source(c.Source.Source)
	}
	e, err := newEngine(c, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return e, nil
}

// SetEnds notes when this server will end on its own, for programs that want to open its cache; zero: it will not.
func (e *Engine) SetEnds(at time.Time) { e.cache.SetEnds(at) }

// SetStopped notes that this server was asked to end. Clients that could start a server of their own then wait a moment for another one to start. It must
// be called before clients notice that the server closes. If the disk hangs, it returns after a second.
func (e *Engine) SetStopped() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = logfile.Within(ctx, "LOCK", func() error { e.cache.SetStopped(); return nil }) // the note is a hint: the stop goes on without it
}

func (o Options) links() cache.Links { return cache.Links{Shared: o.Shared, Follow: o.FollowLinks} }

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnError == "" {
		o.OnError = "fail"
	}
	if o.JobsMax <= 0 {
		o.JobsMax = defaultJobs
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LookForEvents == 0 {
		o.LookForEvents = lookForEvents
	}
	if o.LateEpoch == 0 {
		o.LateEpoch = 10 * time.Second
	}
	return o
}

// newEngine creates an Engine from an open cache. If it fails, the caller still owns the cache.
func newEngine(c *cache.Cache, o Options) (*Engine, error) {
	e := &Engine{cache: c, keeps: c.Placement().Keeps, opts: o, started: o.Now(), now: o.Now, wake: make(chan struct{}, 1), importing: make(chan struct{}, 1)}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	e.server = hex.EncodeToString(random[:])
	e.recordFiles = sync.OnceValue(func() string { return filesDigest(c.Manifest.Shards()) })
	if err := e.checkPeerMemory(); err != nil {
		return nil, err
	}
	e.openAccount()
	if o.Join != nil {
		e.peers = o.Join(e.Share())
	}
	e.disk = disk.New(disk.Options{Cache: c, Now: o.Now, Asleep: e.asleep})
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.assemble(); err != nil {
		e.cancel()
		return nil, err
	}
	return e, nil
}

// assemble creates the parts, from the memory up, and starts the loops. If one fails, it frees the parts that were created before.
func (e *Engine) assemble() (err error) {
	e.mover, err = mover.New(e.cache, mover.Options{SideBytes: e.opts.Side, BlockTimeout: e.opts.BlockTimeout,
		LogTimeout: e.opts.LogTimeout, SourceTimeout: e.opts.SourceTimeout, PeerTime: e.opts.PeerTime, OnRead: e.storeMiss, Awaited: e.isAwaited, Peers: e.fetchPeers(), PeerBytes: e.opts.homeBytes()})
	if err != nil {
		return err
	}
	e.staging, e.fetcher, e.scan = e.mover.Staging, e.mover.Fetcher, e.mover.Scan
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // nothing is under way
			defer cancel()
			err = errors.Join(err, e.dismantle(ctx))
		}
	}()
	if err := e.makeDeliver(); err != nil {
		return err
	}
	e.owner = newJob(e.now, 0, e.cache.Schedule, count.Totals{At: e.started})
	e.jobs = map[int]*job{0: e.owner}
	e.publishJobs()
	e.fetcher.Rest.Store(&e.ownerStats().Reads)
	e.machine = newMachine()
	if err = errors.Join(e.keepArrivals(), e.restoreLogs()); err != nil {
		return err
	}
	if e.cur != nil && e.tgt == nil && e.cur.Epoch >= 0 && e.owner.schedule.IsComplete(e.cur.Epoch+1, e.opts.LateEpoch) {
		e.mu.Lock()
		e.layOut(e.cur.Epoch + 1)
		e.mu.Unlock()
	}
	e.prefetcher = e.newPrefetcher()
	e.loops.Go(e.move)
	e.loops.Go(e.watchEvents)
	e.loops.Go(func() { e.disk.Sweep(e.ctx, e.importing) })
	return nil
}

// restoreLogs recovers the Logfiles for the current layout.
func (e *Engine) restoreLogs() error {
	if e.cache.IsStatic() {
		e.relayout.inPlace, e.relayout.lent = true, true
		if e.peers != nil { // samples are added in the order of arrival
			return nil
		}
		return e.restoreStatic()
	}
	found, err := e.recovered()
	if err != nil {
		return err
	}
	return e.restore(found)
}

// makeDeliver creates the part that answers requests, from a window of producers.
func (e *Engine) makeDeliver() (err error) {
	ahead := prefetchProducer{e}
	e.window = &window{Engine: e, producers: []producer{scanProducer{e}, ahead}, ahead: ahead}
	e.deliver, err = deliver.New(deliver.Options{Staging: e.staging, Fetcher: e.fetcher, Manifest: e.cache.Manifest, Logger: e.cache.Logger, RequestBytes: int64(e.cache.Sizing.Request),
		Patience: e.opts.Patience, Timeout: e.opts.Timeout, LeaseTime: e.opts.LeaseTime, SkipErrors: e.opts.OnError == "skip",
		Window: e.window})
	if err != nil {
		e.deliver = nil
	}
	return err
}

// Close ends the requests, the scan and the mover, makes data in memory durable, and frees everything, in that order. It returns the first error that
// concerns the log. ctx bounds the wait for a disk or source that does not answer. If the error is a [*logfile.HungError], memory stays mapped and the
// cache stays locked until the process ends.
func (e *Engine) Close(ctx context.Context) error {
	if err := e.halt(ctx); err != nil {
		// A device may still write into staging or a reader use the manifest: leave them mapped, because the process is about to end.
		return errors.Join(err, e.cache.Store.Close())
	}
	if a := e.arrivals.Load(); a != nil {
		a.stop()
	}
	e.writeLayout()
	if err := e.cache.NoteComplete(); err != nil {
		e.cache.Logger.Warn("cannot record that the cache is complete; the source is listed again at the next start", "error", err)
	}
	err := e.cache.Close()
	if late := new(logfile.HungError); errors.As(err, &late) {
		return err
	}
	e.freeLayouts()
	e.mover.Free()
	return err
}

// halt ends the goroutines that read and move, as far as they were started. After an error a device may still write to staging.
func (e *Engine) halt(ctx context.Context) error {
	if e.deliver != nil {
		e.deliver.Close()
	}
	e.cancel()
	err := logfile.Within(ctx, "work of the mover and of importance in "+e.cache.Dirs[0], func() error {
		e.endImportance()
		e.loops.Wait()
		e.builders.Wait()
		e.homeReads.Wait()
		if e.prefetcher != nil {
			e.prefetcher.Stop()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.mover.Halt(ctx)
}

// dismantle frees what assemble created. The cache stays open.
func (e *Engine) dismantle(ctx context.Context) error {
	if err := e.halt(ctx); err != nil {
		return err // a device may still write to staging: leave it mapped
	}
	e.freeLayouts()
	e.mover.Release()
	return nil
}

func chosen(name, value, from string) cache.Default {
	return cache.Default{Name: name, Value: value, From: from}
}

// Defaults returns the values that Open chose, and the reasons.
func (e *Engine) Defaults() []cache.Default {
	d := []cache.Default{chosen("budget", humanize.Bytes(e.cache.Sizing.Budget), "fixed by ingest")}
	switch {
	case e.opts.Memory != 0:
	case e.cache.Record.Memory != 0:
		d = append(d, chosen("memory", humanize.Bytes(e.cache.Sizing.Memory), "as given to ingest"))
	default:
		d = append(d, chosen("memory", humanize.Bytes(e.cache.Sizing.Memory), "computed from the dataset and the job"))
	}
	if o := e.opts.IO; o.Engine == "" || o.Engine == "auto" {
		d = append(d, chosen("io", e.cache.IO.Name(), e.cache.IO.Reason()))
	}
	if e.opts.Layout != e.cache.Layout && (e.cache.IsStatic() || strings.HasPrefix(e.cache.LayoutReason, cache.ByDisk)) { // users expect the log layout, so it is not listed
		d = append(d, chosen("layout", e.cache.Layout, e.cache.LayoutReason))
	}
	return d
}

// Layout returns the layout that the server began with: log or static.
func (e *Engine) Layout() string { return e.cache.Layout }

// MemoryFile returns the shared memory, read-only, for clients.
func (e *Engine) MemoryFile() *os.File { return e.staging.File() }

func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
