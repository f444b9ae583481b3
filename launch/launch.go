// Package launch runs a training command with a cache beside it, and serves a cache alone.
//
// Run does the whole of it: it finds or makes the cache of each source, serves it in this process or finds the server that has it, starts
// the command with the sockets in its environment, passes signals on, waits, stops its servers, and returns a Result, which says what was
// seen and what bound it. Serve opens one cache and serves it until it is told to end.
//
// Nothing here parses flags or writes text for people: Options say what to do, and Options.Opened is told what was chosen. Run catches the
// signals of its process, so one process calls it once at a time.
package launch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"lcache/cache"
	"lcache/engine"
	"lcache/metrics"
	"lcache/server"
	"lcache/verdict"
)

// StopTime is how long a clean stop may take: requests in flight end, tails are written, journals are synced.
const StopTime = 30 * time.Second

var discard = slog.New(slog.DiscardHandler)

// A Source is one dataset of a run.
type Source struct {
	Name string // "": none
	Path string // absolute, or with a scheme
}

// Options of Run.
type Options struct {
	Command []string // and its arguments
	Sources []Source // none: that of the only cache in Roots. Of several, each has a name
	Roots   []string // where caches lie: a folder for each source in each. A root that is a cache itself is that source's

	Ingest engine.IngestOptions // of every source, but for its Source, Dirs, Progress and Logger
	Engine engine.Options       // of every server, but for its Dirs, Logger and Version
	Server server.Options       // of every server, but for its Logger and Version. Without a path each listens in its cache

	JobGiven     bool // Ingest.Job was asked for: without, a cache that is there keeps its own
	ListingGiven bool // which files Ingest lists was asked for: a cache that lists others is refused then

	Metrics   string  // host:port to listen on for scrapes of all servers; "": none
	DiskLimit float64 // bytes a second that the disk was measured to give; 0: not known

	Stdin          io.Reader // of the command
	Stdout, Stderr io.Writer
	Environ        []string // of the command, which gets the sockets' variables added
	Version        string   // of this program
	Registry       string   // folder of this user's servers: see package attach
	Logger         *slog.Logger

	Progress func(cache.Progress)        // of listing; may be called from any goroutine
	Began    func(metricsURL string)     // before the first source is looked at
	Opened   func(source int, o *Opened) // a source can be read from now on
}

// Opened is how a source was opened.
type Opened struct {
	Source
	Dirs     []string
	Samples  int
	Bytes    int64
	Defaults []cache.Default // what was chosen where Options leave the choice; none of another process's server

	AttachedTo int  // process whose server it is, which was there before; 0: served by this one
	OtherJob   bool // that server's job is another one than Options ask for
}

// A Result is what a run ended with.
type Result struct {
	Command  string // how people call it: the script, if there is one
	ExitCode int    // 128 and the signal's number, if one killed it
	Signal   syscall.Signal
	Seconds  float64
	Sources  []SourceResult
	Unclean  error // of stopping the servers; nothing is lost but time
}

// SourceResult is what was seen of one source.
type SourceResult struct {
	Source
	AttachedTo int           // process whose server it was; 0: this one
	Status     engine.Status // the server's last
	Part       engine.Status // the same, without what an attached server did before the run
	Verdict    verdict.Verdict
}

// An ExitError is an error with an exit code that shells give it.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Run runs the command, and returns when it has ended and the servers are stopped. The end of ctx, and signals, end the listing; once the
// command runs, signals are passed on to it, and it alone decides when it ends. A command that failed is no error. Errors are *ExitError
// where the exit code matters: the command can't be found or executed, a signal ended the listing.
func Run(ctx context.Context, o Options) (*Result, error) {
	path, err := lookUp(o.Command[0])
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = discard
	}
	r := &run{Options: o}
	signals := catch()
	defer signals.stop()
	listing, release := signals.cancelling(ctx)
	err = r.prepare(listing)
	release()
	if err == nil {
		err = listing.Err()
	}
	if err != nil {
		r.abandon()
		return nil, signals.interrupted(err)
	}
	result, err := r.command(path, signals)
	if err != nil {
		r.abandon()
		return nil, err
	}
	result.Unclean = r.stop()
	for _, s := range r.serving {
		result.Sources = append(result.Sources, s.result(o.DiskLimit))
	}
	return result, nil
}

// run is one Run: its servers, and the command beside them.
type run struct {
	Options
	metrics *metrics.Server
	serving []*serving
	folder  string // in each root; "": by the source
}

// prepare lists every source and serves it.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.metrics, err = listenMetrics(r.Metrics, r.Logger); err != nil {
		return err
	}
	if r.Began != nil {
		r.Began(r.metrics.URL())
	}
	if len(r.Sources) == 0 {
		if err := r.takeOnlyCache(); err != nil {
			return err
		}
	}
	for n, s := range r.Sources {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.open(ctx, n, s); err != nil {
			if s.Name != "" {
				err = fmt.Errorf("%s: %w", s.Name, err)
			}
			return err
		}
	}
	return nil
}

// abandon stops the servers where another error is told already.
func (r *run) abandon() {
	if err := r.stop(); err != nil {
		r.Logger.Warn("end the servers", "err", err)
	}
}
