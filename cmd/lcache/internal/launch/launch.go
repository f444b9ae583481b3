// Package launch runs a training command together with the servers of its caches, and serves one cache alone.
//
// Run finds or makes the cache of each source. It serves the cache in this process, or attaches to the server that uses it already. Then it
// starts the command with the sockets in its environment, passes signals on, waits for the command, stops its own servers, and returns a
// Result with the last status and the verdict for each source. Serve opens one cache and serves it until its context ends.
//
// The package parses no flags and writes no text for people: Options have the settings, and the functions in Options report the choices. Run
// catches the signals of its process, so a process has one Run at a time.
package launch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"lcache/cmd/lcache/internal/monitor"
	"lcache/engine"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/verdict"
	"lcache/server"
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
	Sources []Source // each of several has a name; none: the source of the only cache in Roots
	Roots   []string // folders for caches, one on each SSD, in which each source has a folder; or the directories of one cache

	Ingest ingest.Options // of every source, but for its Source, Dirs, Progress and Logger
	Engine engine.Options // of every server, but for its Dirs, Logger and Version
	Server server.Options // of every server, but for its Logger and Version. Without a path each listens in its cache

	JobGiven     bool // Ingest.Job was asked for; false: an existing cache keeps its own job
	RanksGiven   bool // Ingest.Job has the ranks that read on this machine, nil for all; false: Environ may have them, by a launcher
	ListingGiven bool // the files that Ingest lists were asked for: a cache that lists other files is refused

	Disk      ingest.Disk     // known facts of the devices; nil: none
	Metrics   Metrics         // of all servers
	DiskLimit float64         // bytes a second that the disk was measured to give; 0: not known
	Cluster   *ClusterOptions // nil: this machine alone
	Linger    time.Duration   // that the servers stay for other machines after the command has ended, at most; 0: not at all
	Headspace bool            // loaders of the command feed the second half of each epoch from memory, and measure both

	Stdin          io.Reader // of the command
	Stdout, Stderr io.Writer // of the command
	Environ        []string  // of the command; the variables of the sockets are added
	Version        string    // of this program
	Registry       string    // folder of this user's servers: see package attach
	Logger         *slog.Logger

	Progress func(cache.Progress)             // of listing; may be called from any goroutine
	Began    func(metricsURL, pageURL string) // before the first source is looked at
	Opened   func(source int, o *Opened)      // a source can be read from now on
	Stays    func(command string)             // the command has ended, and the servers stay for other machines
}

// Opened is how a source was opened.
type Opened struct {
	Source
	Dirs     []string
	Samples  int
	Bytes    int64
	Defaults []cache.Default // settings that were chosen where Options leave the choice; none if AttachedTo

	ListedBefore time.Time          // when the source was listed, if its cache has all of it and it was not listed again
	TarPattern   string             // the source that has the samples in the files, if each file is a tar shard
	Records      string             // why each file probably holds many samples; "": nothing suggests that
	FirstEpoch   *ingest.FirstEpoch // requests of the first epoch for shards over a network; nil: about as many as an ingest's
	LeftOut      int                // files of the source that belong to no sample
	Others       []ingest.Other     // other caches of the source, with another filter, if this one is new

	AttachedTo int  // process of a server that ran before; 0: this process serves the source
	OtherJob   bool // the job of that server is not the one in Options
}

// A Result describes a run that is over.
type Result struct {
	Command  string         // name of the command for people: the script, if there is one
	ExitCode int            // of the command; 128 and the signal's number if a signal killed it
	Signal   syscall.Signal // that killed the command; 0: none
	Seconds  float64        // from the command's start to its end
	Sources  []SourceResult // as in Options.Sources
	Loaders  []Headspace    // what Options.Headspace measured
	Unclean  error          // of stopping the servers; no data is lost
}

// SourceResult is the part of a Result about one source.
type SourceResult struct {
	Source
	AttachedTo int               // process of a server that ran before; 0: this process served the source
	Status     status.Document   // the last one
	Part       status.Document   // Status with the jobs of the run alone, without the work that an attached server did before
	Verdict    verdict.Verdict   // on the first job of Part
	Verdicts   []verdict.Verdict // on each job of Part
}

// An ExitError is an error with the exit code that shells give to it.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Run runs the command, and returns when the command has ended and the servers are stopped. Before the command starts, the end of ctx and
// signals end the run. While the command runs, Run passes signals on to it, and ignores the end of ctx. A failing command is not an error of Run.
// The error is an *ExitError if the command can't be found or executed, or a signal ended the run before the command started.
func Run(ctx context.Context, o Options) (*Result, error) {
	path, err := lookUp(o.Command[0])
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = discard
	}
	r := &run{Options: o}
	r.Ingest.Job = r.placed(o.Ingest.Job, false)
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
	r.linger(result.Command, signals)
	result.Unclean = r.stop()
	for _, s := range r.serving {
		result.Sources = append(result.Sources, s.result(o.DiskLimit))
	}
	return result, nil
}

// run is one Run.
type run struct {
	Options
	metrics *monitor.Server
	serving []*serving
	member  *joined // nil: none
	folder  string  // in each root; "": by the source
	notes   string  // file for the measurements of loaders; "": they measure nothing
}

// prepare lists every source and serves it.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.metrics, err = listenMetrics(r.Metrics, r.Logger); err != nil {
		return err
	}
	if r.Began != nil {
		r.Began(r.metrics.URL(), r.metrics.PageURL())
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
	r.metrics.SetReady()
	return nil
}

// abandon stops the servers after another error.
func (r *run) abandon() {
	if err := r.stop(); err != nil {
		r.Logger.Warn("end the servers", "err", err)
	}
}
