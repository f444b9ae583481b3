package main

import (
	"context"
	"errors"
	"fmt"
	"lcache/ingest"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What lcache run ends with where COMMAND says nothing.
const (
	exitRunFailed     = 125 // lcache failed
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the signal's number
)

// endedWith carries an exit code that is not lcache's own. Without err there is nothing to say.
type endedWith struct {
	code int
	err  error
}

func (e *endedWith) Error() string {
	if e.err == nil {
		return fmt.Sprintf("ended with %d", e.code)
	}
	return e.err.Error()
}

func (e *endedWith) Unwrap() error { return e.err }

type runOptions struct {
	sources []namedSource
	roots   []string
	ingest  ingest.Options // of every source, but for what is its own
	serve   serveOptions
	facts   string  // a file
	disk    float64 // bytes a second that the disk gives, read while it is written, by facts; 0: not known
	command []string

	jobGiven, listingGiven bool     // by a flag or a variable
	withoutRecipe          string   // a remark on flags that have no effect; "": none
	serverGiven            []string // flags and variables that a server which runs already has its own of
}

// namedSource is one of --source.
type namedSource struct {
	name   string // "": none
	source string // absolute
}

func newRunCommand(g *globals) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:        "run --source [NAME=]SRC… [flags] -- COMMAND…",
		Short:      "Run a training command with its dataset served from a cache, and sum up",
		SuggestFor: []string{"train", "start", "exec"},
		Long: "run is the front door: it lists the source, makes or finds its cache, serves it in this process, and runs COMMAND\n" +
			"with LCACHE_SOCKET set. Training starts after the listing; the first epoch reads the source, and fills the log.\n" +
			"Signals are passed on to COMMAND, which decides what they mean; when it ends, lcache sums up what it saw (not with\n" +
			"--quiet) and ends with COMMAND's exit code.\n\n" +
			"The cache is a folder in --cache ROOT, named after the source; a cache that ingest made can be given itself, and\n" +
			"keeps its job if no other is given. With several sources each has a name, a cache and a server, and LCACHE_SOCKET_<NAME>\n" +
			"beside LCACHE_SOCKET, which is the first one's. The flags of the job are the first source's; with --batch-size the\n" +
			"others are kept in their own order, as validation reads them.\n\n" +
			"A cache that a server has already is used through that server, which keeps its own job and goes on when COMMAND ends.",
		Example: "  lcache run --source /data/train -- python train.py\n" +
			"  lcache run --source train=/data/train --source val=/data/val --cache /nvme/lcache \\\n" +
			"    --recipe torch.distributed_sampler --epochs 90 --batch-size 256 --world-size 8 -- torchrun --nproc-per-node 8 train.py\n" +
			"  lcache run --cache /nvme/lcache/train-198aece3 -- python train.py",
		Args: cobra.ArbitraryArgs,
		Annotations: map[string]string{exitCodesNote: "  N      what COMMAND ended with\n" +
			"  2      wrong usage: COMMAND was not run\n" +
			"  125    lcache failed: one line on stderr says what, on what, and what to do\n" +
			"  126    COMMAND can't be executed\n" +
			"  127    COMMAND was not found\n" +
			"  128+n  signal n ended it\n"},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows COMMAND is COMMAND's
	f.Var(sources{&o.sources}, "source", "the dataset: a directory; again, each with a name, for more than one")
	f.Var(dirs{&o.roots}, "cache", "where caches lie: a folder, or several on as many SSDs (default: in your cache folder)")
	addJobFlags(f, &o.ingest.Job)
	f.Var(size{&o.ingest.Budget}, "budget", "disk space a cache may take; 1 GB or 5 % of the disk, whichever is more, stay free (default: what the dataset needs, if free)")
	f.Var(size{&o.ingest.Memory}, "memory", "memory a server may take (default: the need, at most a quarter)")
	f.Var(&choice{&o.ingest.Compress, compressions}, "compress", "how samples lie on disk: auto tries, and takes lz4 if it saves 10 % (default: as the cache is, a new one none)")
	addListingFlags(f, &o.ingest)
	f.IntVar(&o.ingest.Jobs, "jobs", 0, "files read at once while listing (default: chosen by lcache)")
	f.BoolVar(&o.ingest.Relist, "relist", false, "look at every directory again, not only at changed ones")
	addSocketFlags(f, &o.serve, "the `PATH` to listen on, for one source (default: lcache.sock in the cache)")
	addLayoutFlag(f, &o.ingest.Layout)
	addMetricsFlag(f, &o.serve.metrics)
	addOnErrorFlag(f, &o.serve.engine.OnError)
	addIOFlags(f, &o.ingest.IO)
	f.StringVar(&o.facts, "facts", "", "the `FILE` that lcache doctor --save wrote: how fast the disk is, for the summary")
	f.BoolVar(&g.json, "json", false, "the summary as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.finish(cmd.Flags(), args); err != nil {
			return err
		}
		r := &runner{runOptions: o, globals: g, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), logs: cmd.ErrOrStderr(), version: cmd.Version}
		return failed(r.run(cmd.Context()))
	}
	return cmd
}

// failed gives the errors of lcache itself an exit code that COMMAND's are not mistaken for. A wrong command line keeps its own:
// COMMAND was not started then.
func failed(err error) error {
	ended := new(endedWith)
	if err == nil || errors.As(err, &ended) || exitCode(err) == exitUsage {
		return err
	}
	return &endedWith{exitRunFailed, err}
}

// finish checks what the flags said, and completes it.
func (o *runOptions) finish(f *pflag.FlagSet, args []string) error {
	o.command = args
	if len(args) == 0 {
		return usagef("no command: give it at the end, as in lcache run --source DIR -- python train.py")
	}
	if err := finishIO(&o.ingest.IO); err != nil {
		return err
	}
	given := func(names ...string) bool {
		return slices.ContainsFunc(names, f.Changed)
	}
	o.jobGiven = given("recipe", "seed", "epochs", "batch-size", "world-size", "ranks", "drop-last", "param")
	o.withoutRecipe = withoutRecipe(f, o.ingest.Job)
	o.listingGiven = given("ext", "flat", "group", "labels")
	for _, name := range []string{"budget", "memory", "compress", "relist", "socket", "socket-mode", "socket-group", "layout", "io", "on-error"} {
		if given(name) {
			o.serverGiven = append(o.serverGiven, "--"+name)
		}
	}
	o.ingest.NoPrefill = true
	o.serve.engine.IO, o.serve.engine.Memory, o.serve.engine.Layout = o.ingest.IO, o.ingest.Memory, o.ingest.Layout
	o.serve.engine.FollowLinks = o.ingest.FollowLinks
	if o.facts != "" {
		var err error
		if o.disk, err = readDiskRate(o.facts); err != nil {
			return err
		}
	}
	if err := o.serve.finishSocket(given("socket-mode")); err != nil {
		return err
	}
	if len(o.sources) > 1 {
		if o.serve.server.Path != "" {
			return usagef("--socket is for one source, there are %d: leave it out, each has one in its cache", len(o.sources))
		}
		for i, s := range o.sources {
			if s.name == "" {
				return usagef("--source %s: with several sources each needs a name: --source train=DIR --source val=DIR", s.source)
			}
			for _, other := range o.sources[:i] {
				if other.source == s.source || environmentName(other.name) == environmentName(s.name) {
					return usagef("--source %s=%s: the same as --source %s=%s", s.name, s.source, other.name, other.source)
				}
			}
		}
	}
	return nil
}

// sources is a flag of [NAME=]SRC, given once for each.
type sources struct{ to *[]namedSource }

var sourceName = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]*)=(.*)$`)

func (s sources) Type() string   { return "[NAME=]SRC" }
func (s sources) String() string { return "" }
func (s sources) Set(text string) (err error) {
	var n namedSource
	n.source = text
	if m := sourceName.FindStringSubmatch(text); m != nil {
		n.name, n.source = m[1], m[2]
	}
	if n.source == "" {
		return errors.New("names no source: give a directory")
	}
	if n.source, err = absoluteSource(n.source); err != nil {
		return err
	}
	if v := environmentName(n.name); n.name != "" && slices.Contains([]string{envName("socket-mode"), envName("socket-group")}, v) {
		return fmt.Errorf("%s would hold the socket of a source of that name, and is a flag: give another name", v)
	}
	*s.to = append(*s.to, n)
	return nil
}

// environmentName is the variable that holds the socket of a named source.
func environmentName(source string) string {
	return envName("socket") + "_" + strings.ToUpper(strings.ReplaceAll(source, "-", "_"))
}

// run serves the sources, runs the command, and sums up. The error is what the process ends with.
func (r *runner) run(ctx context.Context) error {
	path, err := lookUp(r.command[0])
	if err != nil {
		return err
	}
	signals := catch()
	defer signals.stop()
	ctx, release := signals.cancelling(ctx)
	err = r.prepare(ctx)
	release()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r.close()
		return signals.interrupted(err)
	}
	// From here on signals are COMMAND's: they end nothing here.
	done, err := r.runCommand(path, signals)
	if err != nil {
		r.close()
		return err
	}
	stopped := r.stop()
	if err := r.sumUp(done); err != nil {
		return err
	}
	if stopped != nil {
		r.logger.Error("the servers did not end cleanly: nothing is lost but time", "err", stopped)
	}
	if done.code != 0 {
		return &endedWith{code: done.code}
	}
	return nil
}
