package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"lcache/attach"
	"lcache/caches"
	"lcache/engine"
	"lcache/figures"
	"lcache/metrics"
	"lcache/server"
)

// runner is one lcache run: its servers, and the command beside them.
type runner struct {
	runOptions
	*globals
	in        io.Reader
	out, logs io.Writer
	version   string
	logger    *slog.Logger
	metrics   *metrics.Server
	serving   []*serving
	folder    string // in each root; "": by the source
}

// serving is one source that is being served, by this process or by another.
type serving struct {
	namedSource
	dirs   []string
	other  *attachment // nil: what follows is ours
	engine *engine.Engine
	server *server.Server
	entry  *attach.Entry
	served chan error
	last   engine.Status // after the last client has gone; of another's server, when COMMAND had ended
	ready  mean          // batches that lay ready, while it ran
}

// prepare lists every source and serves it.
func (r *runner) prepare(ctx context.Context) error {
	bar := newProgress(r.globals, r.logs)
	defer bar.done()
	r.logger = newLogger(r.globals, bar, slog.LevelWarn)
	var err error
	if r.metrics, err = listenMetrics(r.serve.metrics, r.logger); err != nil {
		return err
	}
	roots, from, err := cacheRoots(r.roots)
	if err != nil {
		return err
	}
	r.remark(bar, func(w io.Writer) {
		if len(r.roots) == 0 {
			writeDefaults(w, []engine.Default{rootDefault(roots, from)})
		}
		if url := r.metrics.URL(); url != "" {
			fmt.Fprintf(w, "%-9s %s\n", "metrics", url)
		}
	})
	r.roots = roots
	if len(r.sources) == 0 {
		only, err := onlyCache(roots)
		if err != nil {
			return err
		}
		r.sources = []namedSource{{source: only.Source}}
		if only.Dir != roots[0] {
			r.folder = filepath.Base(only.Dir)
		}
	}
	for i, s := range r.sources {
		if err := r.openSource(ctx, i, s, bar); err != nil {
			if s.name != "" {
				err = fmt.Errorf("%s: %w", s.name, err)
			}
			return err
		}
	}
	return nil
}

// remark writes to stderr what --quiet leaves out.
func (r *runner) remark(bar *progress, write func(io.Writer)) {
	bar.done()
	if !r.quiet {
		write(r.logs)
	}
}

// onlyCache is the one cache there is, for a run that names no source.
func onlyCache(roots []string) (only caches.Cache, err error) {
	found, err := caches.List(roots[0])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return only, err
	}
	var known []string
	for _, c := range found {
		if c.Source != "" {
			known, only = append(known, c.Source), c
		}
	}
	switch len(known) {
	case 0:
		return only, usagef("no source: give --source DIR, the folder of the dataset")
	case 1:
		return only, nil
	}
	return only, usagef("no source: give --source, of which %s has %s", roots[0], strings.Join(known, ", "))
}

// openSource finds the server of one source, or makes one.
func (r *runner) openSource(ctx context.Context, n int, s namedSource, bar *progress) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dirs := r.home(s.source)
	if c, err := caches.Look(dirs[0]); err == nil && c.Source != "" {
		if err := r.isOf(c, s.source); err != nil {
			return err
		}
	}
	switch attached, err := r.attach(s, dirs, bar); {
	case err != nil:
		return err
	case attached != nil:
		r.serving = append(r.serving, attached)
	default:
		if err := r.serveSource(ctx, n, s, dirs, bar); err != nil {
			return err
		}
	}
	r.metrics.Add(s.name, r.serving[n].status)
	return nil
}

// serveSource brings one source's cache up to date and opens its server.
func (r *runner) serveSource(ctx context.Context, n int, s namedSource, dirs []string, bar *progress) error {
	o := r.ingest
	o.Source, o.Dirs = s.source, dirs
	r.keep(n, &o)
	o.Progress, o.Logger = bar.update, r.logger
	report, err := engine.Ingest(ctx, o)
	if err != nil {
		return err
	}
	so := r.serve
	so.engine.Dirs, so.engine.Logger, so.engine.Version = o.Dirs, r.logger, r.version
	so.server.Logger, so.server.Version = r.logger, r.version
	so.server.Path = cmp.Or(so.server.Path, attach.SocketOf(o.Dirs))
	sv := &serving{namedSource: s, dirs: o.Dirs, served: make(chan error, 1)}
	if sv.engine, err = engine.Open(ctx, so.engine); err != nil {
		return err
	}
	r.serving = append(r.serving, sv)
	if sv.server, err = server.Listen(sv.engine, so.server); err != nil {
		return err
	}
	if sv.entry, err = attach.Register(attach.Dir(), sv.server.Path(), o.Dirs); err != nil {
		r.logger.Warn("lcache status will need --socket for this server", "reason", err)
	}
	go func() {
		err := sv.server.Serve()
		if err != nil {
			r.logger.Error("the server ended", "source", s.source, "err", err)
		}
		sv.served <- err
	}()
	r.remark(bar, func(w io.Writer) {
		fmt.Fprintln(w, servedText(s, "serving", report.Dirs, report.Samples, report.Bytes))
		if n == 0 && r.withoutRecipe != "" {
			fmt.Fprintln(w, r.withoutRecipe)
		}
		defaults := report.Defaults
		for _, d := range sv.engine.Defaults() {
			if !slices.ContainsFunc(defaults, func(other engine.Default) bool { return other.Name == d.Name }) && !(d.Name == "budget" && o.Budget > 0) {
				defaults = append(defaults, d)
			}
		}
		if r.serve.server.Path == "" {
			defaults = append(defaults, engine.Default{Name: "socket", Value: sv.server.Path(), From: "in the cache"})
		}
		writeDefaults(w, defaults)
	})
	return nil
}

// home is where the cache of a source lies: a folder in each root. A root that is a cache itself is meant as that.
func (r *runner) home(source string) []string {
	c, err := caches.Look(r.roots[0])
	var link *caches.LinkError
	if (err == nil || errors.As(err, &link)) && c.Source != "" { // a link to one is refused when it is opened
		return r.roots
	}
	folder := cmp.Or(r.folder, caches.Folder(source, caches.Listing{Exts: r.ingest.Exts, Flat: r.ingest.Flat, Group: r.ingest.Group, Labels: r.ingest.Labels}))
	var dirs []string
	for _, root := range r.roots {
		dirs = append(dirs, filepath.Join(root, folder))
	}
	return dirs
}

// keep lets a cache that is there be what it was made for, where nothing else was said, and gives sources after the first an order
// of their own.
func (r *runner) keep(n int, o *engine.IngestOptions) {
	if c, err := caches.Look(o.Dirs[0]); err == nil && c.Source != "" && r.isOf(c, o.Source) == nil {
		o.Exts, o.Flat, o.Group, o.Labels = c.Exts, c.Flat, c.Group, c.Labels
		if o.FollowLinks == nil && c.FollowGiven == c.FollowLinks { // one of the two flags was given then
			o.FollowLinks = &c.FollowLinks
		}
		o.Memory = cmp.Or(o.Memory, c.Memory)
		var job engine.Job
		if !r.jobGiven && json.Unmarshal(c.Job, &job) == nil {
			o.Job = job
			return
		}
	}
	if n > 0 {
		o.Job = inOrder(o.Job)
	}
}

// inOrder is the job of a source beside the one that is trained on: each epoch as it is listed. Without a batch size the orders
// come from the client.
func inOrder(j engine.Job) engine.Job {
	if j.BatchSize == 0 {
		return engine.Job{}
	}
	return engine.Job{Recipe: "torch.distributed_sampler", Seed: "0", Epochs: j.Epochs, BatchSize: j.BatchSize, World: j.World, Ranks: j.Ranks,
		Params: map[string]string{"shuffle": "false"}}
}

// servedText says what is served from where; verb stands in for the name of a source that has none.
func servedText(s namedSource, verb string, dirs []string, samples int, bytes int64) string {
	return fmt.Sprintf("%-9s %s", cmp.Or(s.name, verb), joined(oneLine(s.source)+" from "+strings.Join(dirs, ","), figures.Plural(int64(samples), "sample", "samples"), figures.Bytes(bytes)))
}

// environment adds to env how COMMAND reaches the servers, and takes out where metrics are: a server that COMMAND starts can't listen there too.
func (r *runner) environment(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, envName("metrics")+"=") })
	for _, s := range r.serving {
		if s.name != "" {
			env = append(env, environmentName(s.name)+"="+s.socket())
		}
	}
	return append(env, envName("socket")+"="+r.serving[0].socket())
}

// stop ends the servers the clean way: clients go first, then the last status is taken, then the caches are closed. Metrics go before
// all of them: a scrape reads what is closed here.
func (r *runner) stop() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err = r.metrics.Shutdown(ctx)
	for _, s := range r.serving {
		err = errors.Join(err, s.stop(ctx))
	}
	return err
}

func (s *serving) socket() string {
	if s.other != nil {
		return s.other.client.Path()
	}
	return s.server.Path()
}

// status may be called concurrently.
func (s *serving) status() (engine.Status, error) {
	if s.other != nil {
		return s.other.status()
	}
	return s.engine.Status(), nil
}

func (s *serving) stop(ctx context.Context) (err error) {
	if s.other != nil {
		s.last, err = s.other.leave()
		return err
	}
	if s.server != nil {
		err = s.server.Shutdown(ctx)
		<-s.served
	}
	s.entry.Remove()
	s.last = s.engine.Status()
	return errors.Join(err, s.engine.Close(ctx))
}

// close is stop where another error is told already.
func (r *runner) close() {
	if err := r.stop(); err != nil {
		r.logger.Warn("end the servers", "err", err)
	}
}

// sample counts the batches that lie ready. A server that does not answer has none to count.
func (s *serving) sample() {
	if now, err := s.status(); err == nil && len(now.Jobs) > 0 && now.Jobs[0].SamplesDelivered > 0 {
		s.ready.add(float64(now.Jobs[0].ReadyBatches))
	}
}

// mean of what was seen from time to time.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum, m.n = m.sum+v, m.n+1 }
func (m *mean) value() float64 {
	if m.n == 0 {
		return 0
	}
	return m.sum / float64(m.n)
}
