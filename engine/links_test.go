package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/sample"
	"lcache/source"
)

// linked is a dataset with three samples behind links that leave it: one sample is a link itself, two are in a class that is a link. The store
// has a second set of these files, with the same sizes and times.
func linked(t *testing.T) (d *dataset, store string) {
	d = makeDataset(t, 9, mixedSizes)
	store = t.TempDir()
	there := &dataset{dir: store}
	for v, version := range []string{"v1", "v2"} {
		for i, name := range []string{"blob", "class/x", "class/y"} {
			path := filepath.Join(version, name)
			there.write(t, path, pseudo(10*v+i, 5000))
			at := time.Unix(1_600_000_000, 0)
			if err := os.Chtimes(filepath.Join(store, path), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	relink(t, "v1", filepath.Join(store, "now"))
	relink(t, filepath.Join(store, "now/blob"), filepath.Join(d.dir, "class-0/linked"))
	relink(t, filepath.Join(store, "now/class"), filepath.Join(d.dir, "class-9"))
	d.reload(t)
	return d, store
}

// relink is ln -sfn.
func relink(t *testing.T, target, link string) {
	t.Helper()
	if err := errors.Join(os.Symlink(target, link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
}

// TestLinks: files behind links are listed and read like all others. Other files of the same size and time behind them are
// a change.
func TestLinks(t *testing.T) {
	d, store := linked(t)
	o, rep := ingested(t, d, ingest.Options{Job: samplerJob(1, 4, 1, false), Block: 128 << 10, Memory: 64 << 20})
	if j, err := cache.ReadRecord(o.Dirs[0]); err != nil || !j.FollowLinks || j.FollowGiven || j.OutsideLinks != 3 || rep.Samples != 12 {
		t.Fatalf("%d samples, %+v, %v", rep.Samples, j.LinkFacts, err)
	}
	relink(t, "v2", filepath.Join(store, "now")) // nothing in the source, nor any folder of it, changes by that
	e := open(t, o)
	c := attach(t, e)
	if _, err := d.readRank(e, c, 0, 0, 0); err != nil {
		t.Errorf("the samples ingested before: %v", err)
	}
	c.Disconnected()
	closeEngine(t, e)

	d.reload(t)
	o, rep = ingested(t, d, ingest.Options{Dirs: o.Dirs, Job: samplerJob(1, 4, 1, false), Block: 128 << 10, Memory: 64 << 20})
	if rep.ChangedSamples != 3 || rep.ReadSamples != 3 {
		t.Errorf("listed again: %d changed, %d read, want 3", rep.ChangedSamples, rep.ReadSamples)
	}
	e = open(t, o)
	defer closeEngine(t, e)
	c = attach(t, e)
	defer c.Disconnected()
	if _, err := d.readRank(e, c, 0, 0, 0); err != nil {
		t.Errorf("after ingesting again: %v", err)
	}
}

// TestLinksUnread: a sample that was not read yet is an error if its link leads to another file by then.
func TestLinksUnread(t *testing.T) {
	d, store := linked(t)
	o, _ := ingested(t, d, ingest.Options{Block: 128 << 10, Memory: 64 << 20, NoPrefill: true})
	relink(t, "v2", filepath.Join(store, "now"))
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	defer c.Disconnected()
	for _, i := range []sample.Index{3, 10, 11} {
		if _, err := c.Get(context.Background(), []sample.Index{i}, nil); !errors.Is(err, source.ErrChanged) {
			t.Errorf("sample %d: %v", i, err)
		}
	}
}

// TestLinksForOthers: if other users may connect, nothing outside the source is served or read unless a flag allows it.
func TestLinksForOthers(t *testing.T) {
	d, _ := linked(t)
	yes, no := new(bool), new(bool)
	*yes = true
	in := ingest.Options{Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Block: 128 << 10, Memory: 64 << 20, NoPrefill: true}
	o, _ := ingested(t, d, in)
	try := func(shared bool, follow *bool, want string) {
		t.Helper()
		o := o
		o.Shared, o.FollowLinks = shared, follow
		e, err := Open(context.Background(), o)
		if err == nil {
			closeEngine(t, e)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("shared %v: %v, want %q", shared, err, want)
		}
	}
	try(false, nil, "")
	try(false, no, "3 samples of "+d.dir+" are reached through links that leave it: leave out --no-follow-links")
	try(true, nil, "other users may connect")
	try(true, no, "leave out --no-follow-links")
	try(true, yes, "")
	in.FollowLinks = yes
	ingested(t, d, in)
	try(true, nil, "")
	try(true, no, "leave out --no-follow-links")

	in.FollowLinks, in.Source = no, d.dir
	in.IO = testIO()
	if _, err := ingest.Run(context.Background(), in); err == nil || !strings.Contains(err.Error(), "leaves the source") {
		t.Errorf("listed without links that leave: %v", err)
	}
	d.remove(t, "class-0/linked")
	d.remove(t, "class-9")
	in.FollowLinks = nil
	o, _ = ingested(t, d, in)
	path := filepath.Join(d.dir, "class-0/000000.bin")
	secret := filepath.Join(filepath.Dir(d.dir), "secret") // outside of the source, on its file system
	if err := os.Rename(path, secret); err != nil {
		t.Fatal(err)
	}
	relink(t, secret, path) // the very file that was listed, but by a link
	for _, c := range []struct {
		shared bool
		want   string
	}{{true, "leaves the source"}, {false, "changed since ingest"}} {
		o.Shared = c.shared
		e := open(t, o)
		cl := attach(t, e)
		if _, err := cl.Get(context.Background(), []sample.Index{0}, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("shared %v: %v, want %q", c.shared, err, c.want)
		}
		cl.Disconnected()
		closeEngine(t, e)
	}
}

// TestLinkToCache: a link in the source that leads to the directory of its own cache is an error.
func TestLinkToCache(t *testing.T) {
	d, _ := linked(t)
	root := t.TempDir()
	relink(t, root, filepath.Join(d.dir, "class-0/root"))
	o := ingest.Options{Source: d.dir, Dirs: []string{filepath.Join(root, "a/cache")}, IO: testIO(), NoPrefill: true}
	if _, err := ingest.Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), `folder "class-0/root/a/cache" is the cache itself`) {
		t.Errorf("got %v", err)
	}
}
