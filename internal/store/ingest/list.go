package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/durable"
	"lcache/internal/jsonbytes"
	"lcache/internal/store/cache"
	"lcache/internal/trust"
	"lcache/sample"
	"lcache/source"
)

// largeManifest is the length from which a manifest is compared with the budget before it is written. After a smaller one was written, the error says how
// large the budget must be.
const largeManifest = 16 << 20

// mayFit returns an error if the large manifest of a new cache takes the whole budget.
func (in *run) mayFit(l *source.Listing) error {
	if in.old != nil || in.o.Budget <= 0 {
		return nil
	}
	if least := sample.LeastBytes(l.Samples()); least >= largeManifest {
		return in.hasBudget(least)
	}
	return nil
}

// listHere lists the source and makes the manifest. If the source has not changed, the old manifest stays. If it has changed, the cache is
// adapted. A damaged manifest is written again, and the cache stays if its checksums belong to the same listing. Folders that have not
// changed since the last listing are not read, unless a sample was found to have changed.
func (in *run) listHere(ctx context.Context) error {
	c := in.cache
	in.o.Progress(cache.Progress{Stage: "listing", Unit: "samples"})
	path := filepath.Join(c.Dirs[0], cache.ManifestName)
	old := in.lastManifest(path)
	if in.o.Relist {
		if err := os.Remove(filepath.Join(c.Dirs[0], cache.ShardsName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if in.holdsAll(old) {
		in.logger().Info("the cache has all of the source, which is not listed again", "source", in.old.Source, "listed", in.old.Listed)
		in.listedAt, c.Manifest = in.old.Listed, old
		in.report.ListedBefore = in.old.Listed
		return nil
	}
	remote := source.IsRemote(c.Source.String())
	if remote || in.sharded() { // their listing makes many times more garbage than it keeps
		defer debug.SetGCPercent(debug.SetGCPercent(listingGC))
	}
	if remote {
		in.listedAt = time.Now().UTC().Truncate(time.Second)
	}
	if same, err := in.sameShards(ctx, old); err != nil {
		return errors.Join(err, old.Close())
	} else if same {
		return nil
	}
	listing, err := in.listSource(ctx, old)
	if err == nil {
		err = in.settleFilter(listing)
	}
	if err == nil {
		in.outside = listing.Outside
		if listing.LeftOut != source.Unknown {
			in.leftOut = listing.LeftOut
		}
		if in.old != nil {
			in.inodes = listing.Inodes()
		}
	}
	if err == nil && listing.Same {
		c.Manifest = old
		return nil
	}
	tmp := path + ".listed"
	var fp sample.Fingerprint
	if err == nil {
		err = in.mayFit(listing)
	}
	if err == nil {
		fp, err = in.write(tmp, listing)
	}
	if err != nil {
		if old != nil {
			old.Close()
		}
		return err
	}
	samples, folders := listing.Samples().Len(), listing.Folders
	if listing = nil; samples > manySamples { // the manifest has it now
		debug.FreeOSMemory()
	}
	err = in.take(ctx, tmp, old, fp, samples)
	if err == nil && c.Manifest == nil {
		c.Manifest, err = sample.OpenManifest(path)
	}
	in.folders = folders
	return err
}

// lastManifest returns the manifest of the last ingest; nil: there is none, or it can't be read.
func (in *run) lastManifest(path string) *sample.Manifest {
	if in.old == nil {
		return nil
	}
	in.leftOut = in.old.LeftOut
	old, err := wholeManifest(path)
	if err != nil {
		in.logger().Warn("the manifest of the last ingest can't be read", "error", err)
	}
	return old
}

// listSource lists the source, unless it was just listed for another cache.
func (in *run) listSource(ctx context.Context, old *sample.Manifest) (*source.Listing, error) {
	if in.moved != nil && in.moved.listing != nil && in.old == nil {
		return in.moved.listing, nil
	}
	cost, err := shardsCost(ctx, in.cache.Lister, in.o)
	if err != nil {
		return nil, err
	}
	if cost != nil {
		in.setCost(cost)
	}
	before := in.before(old)
	in.partly = before != nil
	var told atomic.Int64 // when the other machines got the progress last, in seconds
	return source.Relist(ctx, in.cache.Lister, before, func(n int) {
		in.o.Progress(cache.Progress{Stage: "listing", Done: int64(n), Unit: "samples"})
		if l, now := in.o.Lister, time.Now().Unix(); in.sharing != "" && now-told.Load() >= progressEvery {
			told.Store(now)
			l.Progress(in.sharing, int64(n))
		}
	})
}

// write writes the manifest of a listing in the form that the cache has. For a new cache, create chooses the form.
func (in *run) write(path string, listing *source.Listing) (sample.Fingerprint, error) {
	if in.old != nil && in.old.PackedManifest {
		return sample.WritePacked(path, listing.Classes, listing.Samples())
	}
	return sample.WriteListing(path, listing.Classes, listing.Samples())
}

const (
	listingGC   = 20      // percent by which memory may grow before the garbage collector runs, while a source over a network is listed
	manySamples = 1 << 20 // a listing of more samples is freed at once
)

// holdsAll reports whether the last listing can be used again: the cache has all of a remote source, and the options are the same.
func (in *run) holdsAll(old *sample.Manifest) bool {
	o, was := in.o, in.old
	return o.Complete && !o.Relist && old != nil && was.Complete && source.IsRemote(was.Source) && !in.sharded() && slices.Equal(o.Exts, was.Exts) && o.Flat == was.Flat &&
		o.AllowEmpty == was.AllowEmpty && o.Group == was.Group && o.Labels == was.Labels
}

// sameShards keeps the old manifest if its shards are exactly the source's shards, and the options are the same.
func (in *run) sameShards(ctx context.Context, old *sample.Manifest) (bool, error) {
	o, was := in.o, in.old
	if old == nil || o.Relist || !in.sharded() || o.Labels != "" || was.Labels != "" || !slices.Equal(o.Exts, was.Exts) || o.Flat != was.Flat || o.AllowEmpty != was.AllowEmpty ||
		o.Group != was.Group || o.Part != was.FirstPart || !maps.Equal(o.Records, was.RecordFlags) || in.follows() != was.FollowLinks {
		return false, nil
	}
	outside, same, err := source.SameShards(ctx, in.cache.Lister, old.Shards())
	if err != nil || !same {
		return false, err
	}
	if slices.Contains(outside, true) {
		for i := range old.Len() {
			if outside[old.ShardOf(sample.Index(i))] {
				in.outside++
			}
		}
	}
	in.cache.Manifest = old
	return true, nil
}

// sharded reports whether the source is shards. Listing shards with stored indexes again takes no more than a request for their versions.
func (in *run) sharded() bool {
	_, ok := in.cache.Lister.(source.Sharded)
	return ok
}

// take puts the new listing at path to use, as decideCache says. old is the last manifest; nil: there is none. take closes old, unless it
// stays the manifest.
func (in *run) take(ctx context.Context, path string, old *sample.Manifest, fp sample.Fingerprint, samples int) error {
	f := in.lookAtCache()
	switch {
	case old == nil:
		f.sums = f.record && in.isOf(fp, samples)
	case old.Fingerprint() == fp:
		f.manifest = manifestSame
	default:
		f.manifest = manifestChanged
		in.report.Changed = true
	}
	what, why := decideCache(f)
	in.logger().Debug("the cache that is found", "decision", what, "reason", why)
	switch {
	case f.manifest == manifestSame: // space makes the cache again if necessary
		in.cache.Manifest = old
		return os.Remove(path)
	case what == keep:
		return in.replaceManifest(path)
	case what == adapt:
		return in.adapt(ctx, old, path)
	}
	if old != nil {
		old.Close()
	}
	return in.remake(path)
}

// wholeManifest opens a manifest and checks every byte, names included.
func wholeManifest(path string) (*sample.Manifest, error) {
	m, err := sample.OpenManifest(path)
	if err != nil {
		return nil, err
	}
	if err := m.Verify(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), m.Close())
	}
	return m, nil
}

// isOf reports whether a cache without a manifest belongs to a listing: its checksums name the listing's fingerprint.
func (in *run) isOf(fp sample.Fingerprint, samples int) bool {
	path := filepath.Join(in.cache.Dirs[0], cache.SumsName)
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	sums, err := sample.OpenSums(path, fp, samples)
	if err != nil {
		return false
	}
	return sums.Close() == nil
}

// count counts the files of the manifest by extension. If the last ingest has counted the same manifest, count
// returns that result.
func (in *run) count() (*cache.Counted, error) {
	m := in.cache.Manifest
	n := &cache.Counted{Fingerprint: m.Fingerprint().String(), Files: source.Counts{}}
	if in.old != nil && in.old.Counted != nil && in.old.Counted.Fingerprint == n.Fingerprint {
		return in.old.Counted, nil
	}
	err := m.EachName(func(i sample.Index, name string) bool {
		for _, file := range source.Files(sample.Entry{Name: name, Parts: m.Parts(i)}) {
			n.Files[source.Extension(file)]++
		}
		return len(n.Files) <= source.MostExtensions
	})
	if len(n.Files) > source.MostExtensions {
		n.Files = nil
	}
	return n, err
}

// record writes the folders of this listing to disk, so that the next listing skips unchanged folders.
func (in *run) record() error {
	c := in.cache
	if in.folders == nil {
		return nil
	}
	of := in.listed(c.Manifest.Fingerprint(), c.Source.String())
	return durable.ReplaceFile(filepath.Join(c.Dirs[0], cache.ListingName), source.EncodeFolders(in.folders, of))
}

// listed returns a hash of a listing's fingerprint and its options. Labels are not part of it, because they are added after the listing.
func (in *run) listed(fp sample.Fingerprint, src string) [16]byte {
	said, err := jsonbytes.Marshal([]any{fp.String(), src, in.o.Exts, in.o.Flat, in.o.Group, in.follows()})
	if err != nil {
		panic(err) // impossible: strings and a boolean
	}
	return xxh3.Hash128(said).Bytes()
}

// mostListing bounds the size of the record of a listing, in bytes.
const mostListing = 4 << 30

// before returns the listing of the manifest, or nil if its record can't be trusted.
func (in *run) before(old *sample.Manifest) *source.Before {
	if old == nil || in.o.Relist {
		return nil
	}
	b, err := trust.ReadFile(filepath.Join(in.cache.Dirs[0], cache.ListingName), mostListing)
	if err != nil {
		return nil
	}
	folders, err := source.DecodeFolders(b, in.listed(old.Fingerprint(), in.cache.Source.String()), old.Len())
	if err != nil {
		return nil
	}
	return &source.Before{Folders: folders, Entries: old.Entries, Labelled: in.old.Labels != ""}
}
