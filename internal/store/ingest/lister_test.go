package ingest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// others are the other machines of a cluster, which have listed the source or not.
type others struct {
	manifest []byte // nil: they have not
	err      error  // of Await
	offered  []byte
	fits     error  // what Await was told about the manifest's size
	named    string // the properties
	left     bool
}

func (o *others) Await(_ context.Context, properties, path string, fits func(uint64) error, _ func(string, int64)) (bool, error) {
	o.named = properties
	if o.manifest == nil {
		return false, o.err
	}
	if o.fits = fits(uint64(len(o.manifest))); o.fits != nil {
		return false, nil
	}
	return true, os.WriteFile(path, o.manifest, 0o600)
}
func (o *others) Progress(string, int64) {}
func (o *others) Withdraw(string)        { o.left = true }
func (o *others) Listed(_, path string) (err error) {
	o.offered, err = os.ReadFile(path)
	return err
}

// TestListingOfAnotherMachine: a manifest of another machine is taken without a look at the source, and offered to others. A damaged one is not taken,
// and neither a listing that could not be made is offered.
func TestListingOfAnotherMachine(t *testing.T) {
	dir := testenv.SourceDir(t)
	write := func(name string) {
		path := filepath.Join(dir, "class", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	write("b")
	list := func(o *others) (*ingest.Report, error) {
		return ingest.Run(t.Context(), ingest.Options{Source: dir, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, NoPrefill: true, IO: cache.IO{Engine: "pread"}, Lister: o})
	}
	first := &others{}
	if r, err := list(first); err != nil || r.Samples != 2 || len(first.offered) == 0 {
		t.Fatalf("the first machine: %+v, %v; it offers %d bytes", r, err, len(first.offered))
	}
	write("c")
	second := &others{manifest: first.offered}
	if r, err := list(second); err != nil || r.Samples != 2 || !bytes.Equal(second.offered, first.offered) {
		t.Errorf("with the manifest of the first: %+v, %v", r, err)
	}
	damaged := bytes.Clone(first.offered)
	damaged[len(damaged)/2] ^= 1
	third := &others{manifest: damaged}
	if r, err := list(third); err != nil || r.Samples != 3 || len(third.offered) == 0 {
		t.Errorf("with a damaged manifest: %+v, %v", r, err)
	}
	alone := &others{err: errors.New("no room")}
	if r, err := list(alone); err != nil || r.Samples != 3 || alone.offered != nil {
		t.Errorf("with a cluster that takes no part: %+v, %v", r, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "class")); err != nil {
		t.Fatal(err)
	}
	fails := &others{}
	if _, err := list(fails); err == nil || fails.offered != nil || !fails.left {
		t.Errorf("with an empty source: %v; offered %d bytes, withdrawn: %v", err, len(fails.offered), fails.left)
	}
}

// TestNameOfADataset: with one name and equal options machines share a listing wherever each has the source and the labels, and without a name not.
func TestNameOfADataset(t *testing.T) {
	var places [2]string
	labels := map[string]string{}
	for i := range places {
		places[i] = testenv.SourceDir(t)
		labels[places[i]] = filepath.Join(t.TempDir(), "labels.csv")
		if err := errors.Join(os.WriteFile(filepath.Join(places[i], "a"), []byte("bytes"), 0o644), os.WriteFile(labels[places[i]], []byte("a,1\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	properties := func(dir, name string, allowEmpty bool) string {
		o := &others{}
		if _, err := ingest.Run(t.Context(), ingest.Options{Source: dir, Dataset: name, AllowEmpty: allowEmpty, Labels: labels[dir], Dirs: []string{filepath.Join(t.TempDir(), "cache")},
			NoPrefill: true, IO: cache.IO{Engine: "pread"}, Lister: o}); err != nil {
			t.Fatal(err)
		}
		return o.named
	}
	named := properties(places[0], "train", false)
	for _, c := range []struct {
		dir, name        string
		allowEmpty, same bool
	}{{places[1], "train", false, true}, {places[1], "train", true, false}, {places[1], "val", false, false}, {places[1], "train", true, false}, {places[0], "", false, false}} {
		if got := properties(c.dir, c.name, c.allowEmpty); (got == named) != c.same {
			t.Errorf("%+v: %s, and the first %s", c, got, named)
		}
	}
	if properties(places[0], "", false) == properties(places[1], "", false) {
		t.Error("without a name two places are one dataset")
	}
}

// TestManifestWithoutRoom: a manifest is not received if it leaves the disk less than its reserve, or takes the whole budget.
func TestManifestWithoutRoom(t *testing.T) {
	dir := testenv.SourceDir(t)
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(o *others, budget int64, free uint64) error {
		_, err := ingest.Run(t.Context(), ingest.Options{Source: dir, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, NoPrefill: true, IO: cache.IO{Engine: "pread"}, Lister: o, Budget: budget,
			Statfs: func(_ string, fs *unix.Statfs_t) error {
				*fs = unix.Statfs_t{Bsize: 4096, Blocks: 100 << 30 / 4096, Bavail: free / 4096}
				return nil
			}})
		return err
	}
	first := &others{}
	if err := run(first, 0, 50<<30); err != nil || len(first.offered) == 0 {
		t.Fatalf("%v; it offers %d bytes", err, len(first.offered))
	}
	const reserve = 5 << 30 // of a disk of 100 GiB
	size := uint64(len(first.offered))
	for name, c := range map[string]struct {
		budget int64
		free   uint64
		want   string // in the error; "": it fits
	}{
		"room":               {0, 50 << 30, ""},
		"only the reserve":   {0, reserve, "must stay free"},
		"most of the budget": {int64(size) + 1, 50 << 30, ""},
		"the whole budget":   {int64(size), 50 << 30, "give a larger --budget"},
	} {
		o := &others{manifest: first.offered}
		_ = run(o, c.budget, c.free) // a cache may not fit either
		if c.want == "" && o.fits != nil || c.want != "" && (o.fits == nil || !strings.Contains(o.fits.Error(), c.want)) {
			t.Errorf("%s: %v", name, o.fits)
		}
	}
}

// TestCompressedShardsInACluster: machines cannot divide shards without random access.
func TestCompressedShardsInACluster(t *testing.T) {
	dir := testenv.SourceDir(t)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "a.jpg", Size: 3, Mode: 0o644}), func() error { _, err := w.Write([]byte("abc")); return err }(), w.Close(), z.Close(),
		os.WriteFile(filepath.Join(dir, "x.tar.gz"), b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	_, err := ingest.Run(t.Context(), ingest.Options{Source: "tar:" + dir + "/x.tar.gz", Stream: true, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, NoPrefill: true, IO: cache.IO{Engine: "pread"}, Lister: &others{}})
	if err == nil || !strings.Contains(err.Error(), "leave --cluster out") {
		t.Errorf("the error is %v", err)
	}
}
