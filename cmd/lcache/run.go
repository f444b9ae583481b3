package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/cmd/lcache/internal/launch"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

// exitRunFailed is the exit code of lcache run if lcache itself failed. Commands rarely have it.
const exitRunFailed = 125

// runOptions are the options of lcache run.
type runOptions struct {
	launch        launch.Options
	serve         serveOptions
	disk          diskFlags
	metrics       metricsFlags
	machines      clusterFlags
	withoutRecipe string   // a remark on flags without an effect; "": there are none
	ingestFlags   []string // the given flags that ingest has, too, for one source
	serverGiven   []string // given flags that have no effect on a server which runs already
}

func newRunCommand(g *globals) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:        "run --source [NAME=]SRC… [flags] -- COMMAND…",
		Short:      "Run a training command with a cache, and print a summary",
		SuggestFor: []string{"train", "start", "exec"},
		Long:       runHelp,
		Example: "  lcache run --source /data/train -- python train.py\n" +
			"  lcache run --source train=/data/train --source val=/data/val --cache /nvme/lcache \\\n" +
			"    --recipe torch.distributed_sampler --epochs 90 --batch-size 256 --world-size 8 -- torchrun --nproc-per-node 8 train.py\n" +
			"  lcache run --cache /nvme/lcache/train-198aece3 -- python train.py",
		Args: cobra.ArbitraryArgs,
		Annotations: map[string]string{groupedNote: "yes", exitCodesNote: "  N      the exit code of COMMAND\n" +
			"  2      wrong usage: COMMAND was not run\n" +
			"  125    lcache failed: one line on stderr says what, on what, and what to do\n" +
			"  126    COMMAND can't be executed\n" +
			"  127    COMMAND was not found\n" +
			"  128+n  signal n ended COMMAND\n"},
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

const runHelp = "run lists the source, creates or finds its cache, serves it, and runs COMMAND with LCACHE_SOCKET set. Training starts\n" +
	"after the listing. The first epoch reads the source and fills the cache. When COMMAND ends, run prints a summary (not\n" +
	"with --quiet) and exits with COMMAND's exit code. run passes signals on to COMMAND.\n\n" +
	"The cache is a folder in --cache ROOT, named after the source. --cache may also name a cache that ingest created. Such\n" +
	"a cache keeps its job unless you give another one.\n\n" +
	"With several sources, each has a name, a cache, a server and a variable LCACHE_SOCKET_<NAME>. LCACHE_SOCKET belongs to\n" +
	"the first one, and so do the flags of the job. With --batch-size, the other sources are stored in their listed order,\n" +
	"in which validation reads them.\n\n" +
	"If torchrun or srun starts run on several machines, the job takes their world size and this machine's ranks, unless\n" +
	"you give others.\n\n" +
	"If a server already serves the cache, run uses it. That server keeps its own job and continues when COMMAND ends."

func addRunFlags(f *pflag.FlagSet, o *runOptions) {
	l := &o.launch
	f.SetInterspersed(false) // flags after COMMAND are COMMAND's
	f.Var(sources{&l.Sources}, "source", "dataset: directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/LIST; repeatable with a NAME")
	f.Var(dirs{&l.Roots}, "cache", "directory for caches; several for several SSDs (default: your cache folder)")
	addJobFlags(f, &l.Ingest.Job)
	f.Var(size{&l.Ingest.Budget}, "budget", "maximum disk space of a cache (default: what the dataset needs)")
	f.Var(size{&l.Ingest.Memory}, "memory", "maximum memory of a server (default: computed, at most a quarter)")
	f.Var(&choice{&l.Ingest.Compress, compressions}, "compress", "compression on disk; auto: lz4 if it saves 10 % (default: the cache's, else none)")
	addListingFlags(f, &l.Ingest)
	addRemoteFlags(f, &l.Ingest.Remote)
	f.IntVar(&l.Ingest.Jobs, "jobs", 0, "files read in parallel while listing (default: automatic)")
	f.BoolVar(&l.Ingest.Relist, "relist", false, "list every directory again, not only changed ones")
	addSocketFlags(f, &o.serve, "socket `PATH` to listen on, for one source (default: in the cache)")
	addLayoutFlag(f, &l.Ingest.Layout)
	addMetricsFlags(f, &o.metrics, nil)
	f.BoolVar(&o.metrics.page, "page", false, "show this run on a page, at --metrics or a free port")
	addOnErrorFlag(f, &o.serve.engine.OnError)
	addJobsMaxFlag(f, &o.serve.engine.JobsMax)
	addIOFlags(f, &l.Ingest.IO)
	f.BoolVar(&l.Headspace, "headspace", false, "measure the training loop with data from memory; spoils the model")
	addDiskFlags(f, &o.disk)
	addClusterFlags(f, &o.machines)
}

// failed gives an error of lcache the exit code exitRunFailed, unless it has one: COMMAND was not found, or the command line is wrong.
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

// finish checks the options, and completes them.
func (o *runOptions) finish(f *pflag.FlagSet, args []string) (err error) {
	l := &o.launch
	if l.Command = args; len(args) == 0 {
		return usagef("no command: give it at the end, as in lcache run --source DIR -- python train.py")
	}
	if err := checkJobsMax(o.serve.engine.JobsMax); err != nil {
		return err
	}
	if err := finishIO(&l.Ingest.IO); err != nil {
		return err
	}
	given := func(names ...string) bool {
		return slices.ContainsFunc(names, f.Changed)
	}
	l.JobGiven = given("recipe", "seed", "epochs", "batch-size", "world-size", "ranks", "drop-last", "param")
	l.RanksGiven = given("ranks")
	l.ListingGiven = given(append(recordFlagNames(), "ext", "flat", "group", "labels", "part")...)
	o.withoutRecipe = withoutRecipe(f, l.Ingest.Job)
	for _, name := range []string{"budget", "memory", "compress", "relist", "socket", "socket-mode", "socket-group", "layout", "io", "on-error", "jobs-max"} {
		if given(name) {
			o.serverGiven = append(o.serverGiven, "--"+name)
		}
	}
	if l.Disk, err = o.disk.disk(l.Ingest.IO); err != nil {
		return err
	}
	if o.disk.facts != "" && o.disk.facts != factsOff {
		if l.DiskLimit, err = doctor.DiskLimit(o.disk.facts); err != nil {
			return err
		}
	}
	if err := o.serve.finishSocket(given("socket-mode")); err != nil {
		return err
	}
	if _, err := o.metrics.finish(false); err != nil {
		return err
	}
	l.Metrics = o.metrics.Metrics
	o.ingestFlags = forIngest(f)
	l.Ingest.NoPrefill = true
	l.Engine, l.Server = o.serve.engine, o.serve.server
	l.Engine.IO, l.Engine.Memory, l.Engine.Layout, l.Engine.FollowLinks = l.Ingest.IO, l.Ingest.Memory, l.Ingest.Layout, l.Ingest.FollowLinks
	return checkSources(l.Sources, l.Server.Path)
}

// forIngest returns the given flags of run, as they are given to ingest.
func forIngest(given *pflag.FlagSet) (words []string) {
	theirs := pflag.NewFlagSet("", pflag.ContinueOnError)
	addIngestFlags(theirs, new(ingest.Options))
	given.Visit(func(f *pflag.Flag) {
		if theirs.Lookup(f.Name) == nil || f.Name == "source" || f.Name == "cache" {
			return
		}
		switch v := f.Value.(type) {
		case params:
			for _, key := range slices.Sorted(maps.Keys(*v.to)) {
				words = append(words, "--param="+key+"="+(*v.to)[key])
			}
		case size: // whose text is rounded
			words = append(words, fmt.Sprintf("--%s=%d", f.Name, *v.to))
		default:
			words = append(words, "--"+f.Name+"="+v.String())
		}
	})
	return words
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

// runCommand runs COMMAND and prints the summary. Its error decides the exit code.
func runCommand(cmd *cobra.Command, g *globals, o runOptions) (err error) {
	l, logs := o.launch, cmd.ErrOrStderr()
	bar := newProgress(g, logs)
	defer bar.done()
	logger := newLogger(g, bar, slog.LevelWarn)
	l.Server.Diagnose = g.diagnose(l.Command)
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
	l.Environ = append(l.Environ, o.machines.environ(cmd.Flags())...)
	l.Version, l.Registry, l.Logger, l.Progress = versionText(), attach.Dir(), logger, bar.update
	if l.Cluster, err = o.machines.options(cmd.Flags(), l.Version, logger); err != nil {
		return err
	}
	if l.Linger, err = lingerTime(os.Getenv(lingerVariable)); err != nil {
		return err
	}
	l.Stays = func(command string) {
		remark(func(w io.Writer) {
			fmt.Fprintf(w, "%-9s %s has ended; the server stays for other machines that still read from it, at most %v (Ctrl-C ends it)\n", "cluster", command, l.Linger)
		})
	}
	l.Began = func(metricsURL, pageURL string) {
		remark(func(w io.Writer) {
			if !given {
				writeDefaults(w, []cache.Default{rootDefault(l.Roots, from)})
			}
			if metricsURL != "" {
				fmt.Fprintf(w, "%-9s %s\n%-9s %s\n", "metrics", metricsURL, "page", pageURL)
			}
		})
	}
	l.Opened = func(n int, opened *launch.Opened) {
		remark(func(w io.Writer) { o.writeOpened(w, n, opened) })
	}
	result, err := launch.Run(context.WithoutCancel(cmd.Context()), l) // launch handles signals itself
	if err != nil {
		return err
	}
	if err := writeResult(cmd.OutOrStdout(), g, l.Command, l.Headspace, result); err != nil {
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
		return errors.New("empty source: give a directory")
	}
	if n.Path, err = absoluteSource(n.Path); err != nil {
		return err
	}
	if v := launch.SocketVariable(n.Name); n.Name != "" && slices.Contains([]string{envName("socket-mode"), envName("socket-group")}, v) {
		return fmt.Errorf("%s is also the variable of a flag: choose another source name", v)
	}
	*s.to = append(*s.to, n)
	return nil
}
