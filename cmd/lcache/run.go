package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/attach"
	"lcache/cache"
	"lcache/doctor"
	"lcache/launch"
)

// exitRunFailed is what lcache run ends with if lcache failed: an exit code that COMMAND's is not mistaken for.
const exitRunFailed = 125

// runOptions are what the command line of run says.
type runOptions struct {
	launch        launch.Options
	serve         serveOptions
	facts         string   // a file; "": none
	withoutRecipe string   // a remark on flags that have no effect; "": none
	serverGiven   []string // flags and variables that a server which runs already has its own of
}

func newRunCommand(g *globals) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:        "run --source [NAME=]SRC… [flags] -- COMMAND…",
		Short:      "Run a training command with its dataset served from a cache, and sum up",
		SuggestFor: []string{"train", "start", "exec"},
		Long:       runHelp,
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
	addRunFlags(cmd.Flags(), &o)
	cmd.Flags().BoolVar(&g.json, "json", false, "the summary as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.finish(cmd.Flags(), args); err != nil {
			return err
		}
		return failed(runCommand(cmd, g, o))
	}
	return cmd
}

const runHelp = "run is the front door: it lists the source, makes or finds its cache, serves it in this process, and runs COMMAND\n" +
	"with LCACHE_SOCKET set. Training starts after the listing; the first epoch reads the source, and fills the log.\n" +
	"Signals are passed on to COMMAND, which decides what they mean; when it ends, lcache sums up what it saw (not with\n" +
	"--quiet) and ends with COMMAND's exit code.\n\n" +
	"The cache is a folder in --cache ROOT, named after the source; a cache that ingest made can be given itself, and\n" +
	"keeps its job if no other is given. With several sources each has a name, a cache and a server, and LCACHE_SOCKET_<NAME>\n" +
	"beside LCACHE_SOCKET, which is the first one's. The flags of the job are the first source's; with --batch-size the\n" +
	"others are kept in their own order, as validation reads them.\n\n" +
	"A cache that a server has already is used through that server, which keeps its own job and goes on when COMMAND ends."

func addRunFlags(f *pflag.FlagSet, o *runOptions) {
	l := &o.launch
	f.SetInterspersed(false) // what follows COMMAND is COMMAND's
	f.Var(sources{&l.Sources}, "source", "the dataset: a directory; again, each with a name, for more than one")
	f.Var(dirs{&l.Roots}, "cache", "where caches lie: a folder, or several on as many SSDs (default: in your cache folder)")
	addJobFlags(f, &l.Ingest.Job)
	f.Var(size{&l.Ingest.Budget}, "budget", "disk space a cache may take; 1 GB or 5 % of the disk, whichever is more, stay free (default: what the dataset needs, if free)")
	f.Var(size{&l.Ingest.Memory}, "memory", "memory a server may take (default: the need, at most a quarter)")
	f.Var(&choice{&l.Ingest.Compress, compressions}, "compress", "how samples lie on disk: auto tries, and takes lz4 if it saves 10 % (default: as the cache is, a new one none)")
	addListingFlags(f, &l.Ingest)
	f.IntVar(&l.Ingest.Jobs, "jobs", 0, "files read at once while listing (default: chosen by lcache)")
	f.BoolVar(&l.Ingest.Relist, "relist", false, "look at every directory again, not only at changed ones")
	addSocketFlags(f, &o.serve, "the `PATH` to listen on, for one source (default: lcache.sock in the cache)")
	addLayoutFlag(f, &l.Ingest.Layout)
	addMetricsFlag(f, &l.Metrics)
	addOnErrorFlag(f, &o.serve.engine.OnError)
	addIOFlags(f, &l.Ingest.IO)
	f.StringVar(&o.facts, "facts", "", "the `FILE` that lcache doctor --save wrote: how fast the disk is, for the summary")
}

// failed gives the errors of lcache itself an exit code that COMMAND's are not mistaken for. A wrong command line keeps its own:
// COMMAND was not started then.
func failed(err error) error {
	ended, exit := new(endedWith), new(launch.ExitError)
	switch {
	case err == nil || errors.As(err, &ended) || exitCode(err) == exitUsage:
		return err
	case errors.As(err, &exit):
		return &endedWith{exit.Code, exit.Err}
	}
	return &endedWith{exitRunFailed, err}
}

// finish checks what the flags said, and completes it.
func (o *runOptions) finish(f *pflag.FlagSet, args []string) (err error) {
	l := &o.launch
	if l.Command = args; len(args) == 0 {
		return usagef("no command: give it at the end, as in lcache run --source DIR -- python train.py")
	}
	if err := finishIO(&l.Ingest.IO); err != nil {
		return err
	}
	given := func(names ...string) bool {
		return slices.ContainsFunc(names, f.Changed)
	}
	l.JobGiven = given("recipe", "seed", "epochs", "batch-size", "world-size", "ranks", "drop-last", "param")
	l.ListingGiven = given("ext", "flat", "group", "labels")
	o.withoutRecipe = withoutRecipe(f, l.Ingest.Job)
	for _, name := range []string{"budget", "memory", "compress", "relist", "socket", "socket-mode", "socket-group", "layout", "io", "on-error"} {
		if given(name) {
			o.serverGiven = append(o.serverGiven, "--"+name)
		}
	}
	if o.facts != "" {
		if l.DiskLimit, err = doctor.DiskLimit(o.facts); err != nil {
			return err
		}
	}
	if err := o.serve.finishSocket(given("socket-mode")); err != nil {
		return err
	}
	l.Ingest.NoPrefill = true
	l.Engine, l.Server = o.serve.engine, o.serve.server
	l.Engine.IO, l.Engine.Memory, l.Engine.Layout, l.Engine.FollowLinks = l.Ingest.IO, l.Ingest.Memory, l.Ingest.Layout, l.Ingest.FollowLinks
	return checkSources(l.Sources, l.Server.Path)
}

// checkSources refuses several sources that can't be told apart.
func checkSources(sources []launch.Source, socket string) error {
	if len(sources) < 2 {
		return nil
	}
	if socket != "" {
		return usagef("--socket is for one source, there are %d: leave it out, each has one in its cache", len(sources))
	}
	for i, s := range sources {
		if s.Name == "" {
			return usagef("--source %s: with several sources each needs a name: --source train=DIR --source val=DIR", s.Path)
		}
		for _, other := range sources[:i] {
			if other.Path == s.Path || launch.SocketVariable(other.Name) == launch.SocketVariable(s.Name) {
				return usagef("--source %s=%s: the same as --source %s=%s", s.Name, s.Path, other.Name, other.Path)
			}
		}
	}
	return nil
}

// runCommand runs COMMAND and prints the summary. The error is what the process ends with.
func runCommand(cmd *cobra.Command, g *globals, o runOptions) (err error) {
	l, logs := o.launch, cmd.ErrOrStderr()
	bar := newProgress(g, logs)
	defer bar.done()
	logger := newLogger(g, bar, slog.LevelWarn)
	remark := func(write func(io.Writer)) {
		if bar.done(); !g.quiet {
			write(logs)
		}
	}
	given := len(l.Roots) > 0
	var from string
	if l.Roots, from, err = cacheRoots(l.Roots); err != nil {
		return err
	}
	l.Stdin, l.Stdout, l.Stderr, l.Environ = cmd.InOrStdin(), cmd.OutOrStdout(), logs, os.Environ()
	l.Version, l.Registry, l.Logger, l.Progress = versionText(), attach.Dir(), logger, bar.update
	l.Began = func(metricsURL string) {
		remark(func(w io.Writer) {
			if !given {
				writeDefaults(w, []cache.Default{rootDefault(l.Roots, from)})
			}
			if metricsURL != "" {
				fmt.Fprintf(w, "%-9s %s\n", "metrics", metricsURL)
			}
		})
	}
	l.Opened = func(n int, opened *launch.Opened) {
		remark(func(w io.Writer) { o.writeOpened(w, n, opened) })
	}
	result, err := launch.Run(context.WithoutCancel(cmd.Context()), l) // which catches signals itself
	if err != nil {
		return err
	}
	if err := writeResult(cmd.OutOrStdout(), g, l.Command, result); err != nil {
		return err
	}
	if result.Unclean != nil {
		logger.Error("the servers did not end cleanly: nothing is lost but time", "err", result.Unclean)
	}
	if result.ExitCode != 0 {
		return &endedWith{code: result.ExitCode}
	}
	return nil
}

// sources is a flag of [NAME=]SRC, given once for each.
type sources struct{ to *[]launch.Source }

var sourceName = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]*)=(.*)$`)

func (s sources) Type() string   { return "[NAME=]SRC" }
func (s sources) String() string { return "" }
func (s sources) Set(text string) (err error) {
	var n launch.Source
	n.Path = text
	if m := sourceName.FindStringSubmatch(text); m != nil {
		n.Name, n.Path = m[1], m[2]
	}
	if n.Path == "" {
		return errors.New("names no source: give a directory")
	}
	if n.Path, err = absoluteSource(n.Path); err != nil {
		return err
	}
	if v := launch.SocketVariable(n.Name); n.Name != "" && slices.Contains([]string{envName("socket-mode"), envName("socket-group")}, v) {
		return fmt.Errorf("%s would hold the socket of a source of that name, and is a flag: give another name", v)
	}
	*s.to = append(*s.to, n)
	return nil
}
