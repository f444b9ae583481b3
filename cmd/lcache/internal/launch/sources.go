package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
	"lcache/internal/trust"
	"lcache/internal/usage"
	"lcache/logfile"
	"lcache/source"
)

// busyTime is how long a run waits for a process that has the cache and serves nothing yet: another run that lists the same source, or a server that is just ending.
const busyTime = time.Minute

// open finds the server of the n-th source, or makes one, and reports how.
func (r *run) open(ctx context.Context, n int, s Source) error {
	until := time.Now().Add(busyTime)
	for isFirst := true; ; isFirst = false {
		err := r.openNow(ctx, n, s)
		busy := new(logfile.BusyError)
		if !errors.As(err, &busy) || time.Now().After(until) {
			return err
		}
		if isFirst {
			r.Logger.Warn("another process has the cache and serves nothing yet: waiting for it", "pid", busy.Pid, "dir", busy.Dir, "at_most", busyTime)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// openNow is open without the wait for another process.
func (r *run) openNow(ctx context.Context, n int, s Source) error {
	h := r.home(s.Path)
	c, err := cachedir.Look(h.dirs[0])
	if err == nil && c.Source != "" {
		if h.filtered != nil && c.Pid != 0 && r.difference(c, r.Ingest.Exts) != "" {
			h = home{dirs: h.filtered}
		} else if err := r.isOf(c, s.Path, h.filtered == nil); err != nil {
			return err
		}
	}
	opened := &Opened{Source: s, Dirs: h.dirs}
	sv, err := r.attach(s, h.dirs, opened)
	if err == nil && sv == nil {
		sv, err = r.serve(ctx, n, s, h, opened)
	}
	if err != nil {
		return err
	}
	r.serving = append(r.serving, sv)
	r.metrics.Add(s.Name, sv.status)
	if r.Opened != nil {
		r.Opened(n, opened)
	}
	return nil
}

// serve brings the n-th source's cache up to date and opens a server for it.
func (r *run) serve(ctx context.Context, n int, s Source, h home, opened *Opened) (*serving, error) {
	if r.member == nil { // a run that attaches to a server needs no ports
		var err error
		if r.member, err = join(ctx, r.Cluster); err != nil {
			return nil, err
		}
	}
	o := r.Ingest
	if r.member != nil {
		o.Lister, o.Dataset = r.member.lister, r.Cluster.datasetName(s)
	}
	o.Source, o.Dirs, o.Progress, o.Logger, o.Disk, o.Complete = s.Path, h.dirs, r.Progress, r.Logger, r.Disk, true
	if h.filtered != nil {
		filtered := o
		filtered.Dirs = h.filtered
		r.keep(n, &filtered)
		o.Filtered = &filtered
	}
	r.keep(n, &o)
	report, err := ingest.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	serve := ServeOptions{member: r.member, name: r.Cluster.datasetName(s), Engine: r.Engine, Server: r.Server, Registry: r.Registry, Version: r.Version, Logger: r.Logger}
	serve.Engine.Dirs = report.Dirs
	if r.Disk != nil {
		serve.Engine.Disk = r.Disk(ctx, false, report.Dirs)
	}
	l, err := start(ctx, serve)
	if err != nil {
		return nil, err
	}
	opened.Dirs, opened.Samples, opened.Bytes, opened.Defaults = report.Dirs, report.Samples, report.Bytes, report.Defaults
	opened.ListedBefore, opened.TarPattern, opened.Records = report.ListedBefore, report.TarPattern, report.Records
	opened.LeftOut, opened.Others, opened.FirstEpoch = report.LeftOut, report.Others, report.FirstEpoch
	for _, d := range l.defaults {
		known := slices.ContainsFunc(report.Defaults, func(other cache.Default) bool { return other.Name == d.Name })
		if !known && !(d.Name == "budget" && o.Budget > 0) {
			opened.Defaults = append(opened.Defaults, d)
		}
	}
	opened.Defaults = append(opened.Defaults, l.chosen...)
	if w := r.launched(); !r.RanksGiven && o.Job.Ranks != nil && slices.Equal(o.Job.Ranks, w.here) {
		opened.Defaults = append(opened.Defaults, cache.Default{Name: "ranks", Value: fmt.Sprintf("%s of %d", strings.Trim(strings.ReplaceAll(fmt.Sprint(w.here), " ", ","), "[]"), w.size), From: "of the launcher"})
	}
	return &serving{Source: s, local: l, disk: serve.Engine.Disk}, nil
}

// takeOnlyCache makes the source of the only cache in the first root the run's source.
func (r *run) takeOnlyCache() error {
	found, err := cachedir.List(r.Roots[0])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found = slices.DeleteFunc(found, func(c cachedir.Cache) bool { return c.Source == "" })
	switch len(found) {
	case 0:
		return usage.Errorf("no source: give --source DIR, the folder of the dataset")
	case 1:
		r.Sources = []Source{{Path: found[0].Source}}
		if found[0].Dir != r.Roots[0] {
			r.folder = filepath.Base(found[0].Dir)
		}
		return nil
	}
	var known []string
	for _, c := range found {
		known = append(known, c.Source)
	}
	return usage.Errorf("no source: give --source, one of those in %s: %s", r.Roots[0], strings.Join(known, ", "))
}

// A home has the directories of a source's cache: a folder in each root; or the roots themselves, if they are a cache.
type home struct {
	dirs     []string
	filtered []string // the directories if the filter removes files; dirs then belong to the source without a filter. nil: dirs are the cache's in any case
}

// home returns where the cache of a source is, or will be made.
func (r *run) home(src string) home {
	c, err := cachedir.Look(r.Roots[0])
	var link *cachedir.LinkError
	if (err == nil || errors.As(err, &link)) && c.Source != "" { // opening refuses a link to a cache
		return home{dirs: r.Roots}
	}
	if untrusted := new(trust.Error); errors.As(err, &untrusted) {
		// Another user may have put a job.json into a shared root; the root is not a cache then. If the job.json is this user's, opening the root reports the problem.
		if _, err := cache.ReadRecord(r.Roots[0]); err == nil {
			return home{dirs: r.Roots}
		}
	}
	listing := cachedir.Listing{Exts: r.Ingest.Exts, Flat: r.Ingest.Flat, Group: r.Ingest.Group, Labels: r.Ingest.Labels, FirstPart: r.Ingest.Part, RecordFlags: r.Ingest.Records}
	if remote, err := r.Ingest.Remote.Completed(src); err == nil { // ingest reports the error
		listing.Remote.S3.Endpoint = remote.S3.Endpoint
	}
	in := func(folder string) (dirs []string) {
		for _, root := range r.Roots {
			dirs = append(dirs, filepath.Join(root, folder))
		}
		return dirs
	}
	if r.folder != "" {
		return home{dirs: in(r.folder)}
	}
	text := source.ListIdentity(src)
	named := in(cachedir.Folder(text, listing))
	if _, err := cachedir.Look(named[0]); len(listing.Exts) == 0 || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, cachedir.ErrNotCache) {
		return home{dirs: named}
	}
	listing.Exts = nil
	return home{dirs: in(cachedir.Folder(text, listing)), filtered: named}
}

// keep takes from an existing cache the settings that were not given, so that the cache keeps them. Sources after the first get a job of
// their own.
func (r *run) keep(n int, o *ingest.Options) {
	if c, err := cachedir.Look(o.Dirs[0]); err == nil && c.Source != "" && r.isOf(c, o.Source, o.Filtered == nil) == nil {
		if o.Filtered == nil {
			o.Exts = c.Exts
		}
		o.Flat, o.Group, o.Labels, o.Part, o.Records = c.Flat, c.Group, c.Labels, c.FirstPart, c.RecordFlags
		if o.FollowLinks == nil && c.FollowGiven == c.FollowLinks { // one of the two flags was given when the cache was made
			o.FollowLinks = &c.FollowLinks
		}
		o.Memory = cmp.Or(o.Memory, c.Memory)
		var job schedule.Job
		if !r.JobGiven && jsonbytes.Unmarshal(c.Job, &job) == nil {
			o.Job = r.placed(job, true)
			return
		}
	}
	if n > 0 {
		o.Job = inOrder(o.Job)
	}
}

// inOrder returns the job of a source after the first: each epoch in the order of the listing. Without a batch size the client pushes the
// orders.
func inOrder(j schedule.Job) schedule.Job {
	switch {
	case j.BatchSize == 0 && j.Ranks == nil:
		return schedule.Job{}
	case j.BatchSize == 0: // a part of the ranks reads here, as of the first source
		return schedule.Job{World: j.World, Ranks: j.Ranks}
	}
	return schedule.Job{Recipe: "torch.distributed_sampler", Seed: "0", Epochs: j.Epochs, BatchSize: j.BatchSize, World: j.World, Ranks: j.Ranks,
		Params: map[string]string{"shuffle": "false"}}
}

// isOf refuses a cache of another source, or of other files of it. Without filtered the filter of extensions makes no difference.
func (r *run) isOf(c cachedir.Cache, src string, filtered bool) error {
	if !source.SameAs(src, c.Source, c.Identity) {
		return errcode.Errorf(errcode.OtherCache, "%s is the cache of %s, not of %s: use another --cache, or remove it", c.Dir, c.Source, src)
	}
	remote, err := r.Ingest.Remote.Completed(src)
	if err != nil {
		return err
	}
	if asked, has := remote.S3.Endpoint, c.Remote.S3.Endpoint; asked != "" && !remote.S3.IsAt(has) {
		return errcode.Errorf(errcode.OtherCache, "%s is the cache of %s at %s, not at %s: use another --cache, or remove it", c.Dir, c.Source, cmp.Or(has, "AWS"), asked)
	}
	if !r.ListingGiven {
		return nil
	}
	exts := r.Ingest.Exts
	if !filtered {
		exts = c.Exts
	}
	if differ := r.difference(c, exts); differ != "" {
		return errcode.Errorf(errcode.OtherCache, "%s lists other files of %s than you ask for (%s): leave out these flags, or use another --cache", c.Dir, c.Source, differ)
	}
	return nil
}

// difference says how the list that the run asks for with these extensions differs from that of a cache.
func (r *run) difference(c cachedir.Cache, exts []string) string {
	asked := source.Options{Exts: exts, Flat: r.Ingest.Flat, Group: r.Ingest.Group, Labels: r.Ingest.Labels, Part: r.Ingest.Part, Records: r.Ingest.Records}
	made := source.Options{Exts: c.Exts, Flat: c.Flat, Group: c.Group, Labels: c.Labels, Part: c.FirstPart, Records: c.RecordFlags}
	return asked.Difference(made, c.Files)
}
