package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/zeebo/xxh3"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/internal/usage"
	"lcache/sample"
	"lcache/source"
)

// A Lister makes one machine of a cluster list a source for all. properties names the listing: it is equal on all machines that want the same one.
type Lister interface {
	// Await waits until another machine has listed the source, and writes its manifest to a file, unless fits returns an error for its size. It
	// returns false if this machine should list the source.
	Await(ctx context.Context, properties, path string, fits func(bytes uint64) error, waits func(host string, samples int64)) (fetched bool, err error)
	Progress(properties string, samples int64) // what this machine has listed so far
	Listed(properties, path string) error      // the manifest in a file is for the others
	Withdraw(properties string)                // this machine could not list the source
}

// list makes the manifest: by the listing of another machine, or of this one.
func (in *run) list(ctx context.Context) error {
	l := in.o.Lister
	if l == nil || in.o.DryRun || in.o.Filtered != nil || in.moved != nil {
		return in.listHere(ctx)
	}
	properties, path := in.properties(), filepath.Join(in.cache.Dirs[0], cache.ManifestName)
	if !in.o.Relist {
		in.sharing = properties
		defer func() { in.sharing = "" }()
		fetched, err := l.Await(ctx, properties, path+".listed", in.manifestFits, func(host string, samples int64) {
			in.o.Progress(cache.Progress{Stage: "waiting for " + usage.Name(host) + ": listing", Done: samples, Unit: "samples"})
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			in.logger().Warn("the listing is not shared with other machines", "error", err)
			return in.listHere(ctx)
		case fetched:
			if err = in.takeFetched(ctx, path); err == nil {
				in.offerListing(properties, path)
				return nil
			}
			in.logger().Warn("the listing of another machine can't be used; the source is listed here", "error", err)
		}
	}
	if err := in.listHere(ctx); err != nil {
		l.Withdraw(properties)
		return err
	}
	in.offerListing(properties, path)
	return nil
}

// hasBudget returns an error if a manifest of this length or a larger one takes the whole budget.
func (in *run) hasBudget(bytes uint64) error {
	if budget := in.o.Budget; budget > 0 && bytes >= uint64(budget) {
		return errcode.Errorf(errcode.BudgetTooSmall, "the manifest takes at least %s, and the budget is %s: give a larger --budget, or leave it out", humanize.IBytes(bytes), humanize.IBytes(uint64(budget)))
	}
	return nil
}

// manifestFits returns an error if a manifest of another machine leaves the disk less than its reserve, or takes the whole budget.
func (in *run) manifestFits(bytes uint64) error {
	if err := in.hasBudget(bytes); err != nil {
		return err
	}
	volumes, err := in.volumes(in.cache.Made)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if v.first && bytes > v.freeBytes() {
			return errcode.Errorf(errcode.NoSpace, "the manifest has %s; %s has %s free, and %s must stay free: make room, or give another --cache", humanize.IBytes(bytes),
				v.dir, humanize.IBytes(v.free+v.reserved), humanize.IBytes(cachedir.Reserve(v.size)))
		}
	}
	return nil
}

// offerListing offers the manifest to other machines. If that fails, they list the source themselves.
func (in *run) offerListing(properties, path string) {
	if err := in.o.Lister.Listed(properties, path); err != nil {
		in.logger().Warn("the listing is not shared with other machines", "error", err)
		in.o.Lister.Withdraw(properties)
	}
}

// progressEvery is the time between two reports of progress to other machines, in seconds.
const progressEvery = 5

// properties names the listing among the machines of a cluster: the source and all options that change a listing. The name of the dataset stands for the
// places where this machine has the source and the labels.
func (in *run) properties() string {
	o := in.o
	labels := ""
	if o.Labels != "" {
		b, err := os.ReadFile(o.Labels)
		labels = fmt.Sprintf("%016x %v", xxh3.Hash(b), err) // the listing reports the error
	}
	place := []string{in.cache.Source.String(), o.Labels}
	if o.Dataset != "" {
		place = []string{"dataset", kindOf(in.cache.Source.String()), o.Dataset}
	}
	said, err := jsonbytes.Marshal([]any{place, o.Exts, o.Flat, o.AllowEmpty, o.Group, o.Part, labels, o.Stream, o.Records, in.follows(), o.Remote.S3.Endpoint})
	if err != nil {
		panic(err) // impossible: strings and booleans
	}
	return string(said)
}

// kindOf returns the kind of a source, such as tar or s3; "": a directory.
func kindOf(src string) string {
	kind, _, found := strings.Cut(src, ":")
	if !found || strings.Contains(kind, "/") {
		return ""
	}
	return kind
}

// takeFetched takes the manifest of another machine as the new listing.
func (in *run) takeFetched(ctx context.Context, path string) error {
	tmp := path + ".listed"
	m, err := wholeManifest(tmp)
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	fp, samples := m.Fingerprint(), m.Len()
	if err := errors.Join(in.looksLike(ctx, m), m.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	old := in.lastManifest(path)
	if source.IsRemote(in.cache.Source.String()) {
		in.listedAt = time.Now().UTC().Truncate(time.Second)
	}
	err = in.take(ctx, tmp, old, fp, samples)
	if err == nil && in.cache.Manifest == nil {
		in.cache.Manifest, err = sample.OpenManifest(path)
	}
	return err
}

// Bounds of the samples that are compared with the manifest of another machine.
const (
	comparedSamples = 16
	comparedBytes   = 1 << 20   // larger samples are not read
	leastCompared   = 256 << 20 // unless all are larger: then the smallest is read, if it has no more bytes
)

// looksLike reads some samples of another machine's manifest from this machine's source. An error means that the source is another one here, or has
// changed since.
func (in *run) looksLike(ctx context.Context, m *sample.Manifest) error {
	var smallest sample.Entry
	compared := false
	for range min(comparedSamples, m.Len()) {
		e, err := m.Entry(sample.Index(rand.IntN(m.Len())))
		if err != nil {
			return err
		}
		if e.Size > comparedBytes && (smallest.Size == 0 || e.Size < smallest.Size) {
			smallest = e
		}
		if e.Size == 0 || e.Size > comparedBytes {
			continue
		}
		compared = true
		if err := in.cache.Lister.Read(ctx, e, make([]byte, e.Size)); err != nil {
			return err
		}
	}
	if !compared && smallest.Size > 0 && smallest.Size <= leastCompared {
		return in.cache.Lister.Read(ctx, smallest, make([]byte, smallest.Size))
	}
	return nil
}
