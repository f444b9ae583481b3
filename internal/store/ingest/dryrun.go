package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/internal/trust"
	"lcache/logfile"
	"lcache/sample"
	"lcache/source"
)

// dryRun lists a source and reports the cost of reading the samples that the cache does not have. For remote shards without a stored index it
// requests only the sizes. It creates and changes nothing, except in a temporary folder.
func dryRun(ctx context.Context, o Options) (report *Report, err error) {
	for _, dir := range o.Dirs {
		if err := cachedir.CheckTrust(dir); err != nil {
			return nil, err
		}
	}
	old, err := held(o)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "lcache-dry-run-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	kept, err := copyKept(o, temp)
	if err != nil {
		return nil, err
	}
	s, err := source.Open(o.Source, source.Options{Exts: o.Exts, Flat: o.Flat, Group: o.Group, Part: o.Part, Records: o.Records, Labels: o.Labels, Stream: o.Stream, AllowEmpty: o.AllowEmpty, Jobs: o.Jobs,
		NoFollowLinks: o.FollowLinks != nil && !*o.FollowLinks, Remote: o.Remote, Excluded: o.Dirs, Kept: kept})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	o.Progress(cache.Progress{Stage: "listing", Unit: "samples"})
	switch cost, err := shardsCost(ctx, s, o); {
	case err != nil:
		return nil, err
	case cost != nil:
		return &Report{Source: s.String(), Dirs: o.Dirs, Bytes: cost.Bytes, Cost: cost}, nil
	}
	listing, err := source.Relist(ctx, s, nil, func(n int) { o.Progress(cache.Progress{Stage: "listing", Done: int64(n), Unit: "samples"}) })
	if err != nil {
		return nil, err
	}
	if report, err = costOfMissing(s, listing, old, o, temp); err != nil {
		return nil, err
	}
	if _, sharded := s.(source.Sharded); sharded || o.Group != "" {
		return report, nil
	}
	list := listing.Samples()
	return report, report.hint(s.String(), list.Len(), func(i int) (string, uint32, error) { return list.At(i).Name, list.At(i).Size, nil })
}

// costOfMissing reports the cost of the samples that a cache lacks. old is its record; nil: no cache. temp is a folder for temporary files.
func costOfMissing(s source.Source, listing *source.Listing, old *cache.Record, o Options, temp string) (report *Report, err error) {
	if old == nil {
		return costOfAll(s, listing, o), nil
	}
	path := filepath.Join(temp, cache.ManifestName)
	if _, err := sample.WriteListing(path, listing.Classes, listing.Samples()); err != nil {
		return nil, err
	}
	m, err := sample.OpenManifest(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	in := &run{o: o, old: old, cache: &cache.Cache{Manifest: m, Lister: s}}
	stays, err := in.stays()
	if err != nil {
		return nil, err
	}
	var todo []sample.Index
	total := int64(0)
	from, to := in.cache.ShareOf(o.Share, o.Shares)
	for i := from; i < to; i++ {
		if index := sample.Index(i); !stays[index] {
			todo, total = append(todo, index), total+int64(m.Size(index))
		}
	}
	return &Report{Source: s.String(), Dirs: o.Dirs, Samples: m.Len(), Classes: len(m.Classes()), Bytes: total, Cost: in.costOf(todo, total), LeftOut: listing.LeftOut}, nil
}

// costOfAll reports the cost of all samples of a share.
func costOfAll(s source.Source, listing *source.Listing, o Options) *Report {
	cost := &Cost{}
	list := listing.Samples()
	for i := o.Share * list.Len() / o.Shares; i < (o.Share+1)*list.Len()/o.Shares; i++ {
		e := list.At(i)
		cost.Samples++
		cost.Bytes += int64(e.Size)
		cost.Gets += source.Gets(e.Size, e.Parts)
	}
	if requests, ok := source.RequestsOf(s); ok {
		cost.Listed = requests.Requests
	} else {
		cost.Gets = 0
	}
	return &Report{Source: s.String(), Dirs: o.Dirs, Samples: list.Len(), Classes: len(listing.Classes), Bytes: cost.Bytes, Cost: cost, LeftOut: listing.LeftOut}
}

// copyKept copies the cache's indexes of shards into a folder, because a listing writes to them. It returns the copy's path; "": there is none.
func copyKept(o Options, into string) (path string, err error) {
	if len(o.Dirs) == 0 || o.Relist {
		return "", nil
	}
	from, err := trust.Open(filepath.Join(o.Dirs[0], cache.ShardsName), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(into, cache.ShardsName))
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	return to.Name(), errors.Join(err, to.Close())
}

// stays returns the samples of the new listing that an ingest would not read, because the cache has them or has no
// room for them. It returns none if this source has no cache, or if the cache would be made again.
func (in *run) stays() (stays map[sample.Index]bool, err error) {
	if in.old == nil {
		return nil, nil
	}
	held, err := cache.OpenReadOnly(in.o.Dirs, in.o.Logger)
	if busy := new(logfile.BusyError); errors.As(err, &busy) {
		return nil, err
	}
	if err != nil {
		in.logger().Warn("the cache can't be read: the cost is that of all samples", "error", err)
		return nil, nil
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	held.Elsewhere = in.o.IO.Elsewhere
	found := in.lookAtCache()
	if found.manifest = manifestChanged; held.Manifest.Fingerprint() == in.cache.Manifest.Fingerprint() {
		found.manifest = manifestSame
	}
	if what, _ := decideCache(found); what == remake {
		return nil, nil
	}
	moved, err := sample.Remap(held.Manifest, in.cache.Manifest)
	if err != nil {
		return nil, err
	}
	stays = map[sample.Index]bool{}
	keeps := held.Placement()
	for i, now := range moved {
		index := sample.Index(i)
		if _, known := held.Sums.Get(index); now != sample.None && (!keeps.Keeps(index) || known && held.Locations.Get(index) != 0) {
			stays[now] = true
		}
	}
	return stays, nil
}

// held returns the record of the cache for a dry run; nil: there is none, or it is damaged.
func held(o Options) (*cache.Record, error) {
	if len(o.Dirs) == 0 {
		return nil, nil
	}
	old, err := cache.ReadRecord(o.Dirs[0])
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, cache.ErrDamaged):
		return nil, nil
	case err != nil:
		return nil, err
	case !source.SameAs(o.Source, old.Source, old.Identity):
		return nil, fmt.Errorf("%s is the cache of %s, not of %s: use another --cache, or remove it", o.Dirs[0], old.Source, o.Source)
	}
	return &old, nil
}
