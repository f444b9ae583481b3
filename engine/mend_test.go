package engine

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/cache"
)

// Regression: a job.json with another seed was believed, and the job ran in another order.
func TestFlippedSeedIsNoticed(t *testing.T) {
	b := newDamageBed(t)
	root := filepath.Join(t.TempDir(), "copy")
	good := b.files[b.first(cache.RecordName)]
	bad := bytes.Replace(good, []byte(`"seed": "7"`), []byte(`"seed": "6"`), 1)
	if bytes.Equal(good, bad) {
		t.Fatalf("no seed in %s", good)
	}
	o := b.spoiled(t, root, b.first(cache.RecordName), bad)
	if !b.survives(t, o, "another seed") {
		t.Error("a job.json that was changed is served")
	}
	if _, err := cache.ReadRecord(o.Dirs[0]); err != nil {
		t.Errorf("after ingest: %v", err)
	}
}

// A job.json of the first versions has no checksum, and is accepted.
func TestJobWithoutChecksum(t *testing.T) {
	b := newDamageBed(t)
	root := filepath.Join(t.TempDir(), "copy")
	body, _, found := bytes.Cut(b.files[b.first(cache.RecordName)], []byte(",\n  \"checksum\": \""))
	if !found {
		t.Fatalf("no checksum in %s", b.files[b.first(cache.RecordName)])
	}
	if b.survives(t, b.spoiled(t, root, b.first(cache.RecordName), append(body, "\n}\n"...)), "no checksum") {
		t.Error("refused")
	}
}

// Regression: errors asked the user to run ingest, and ingest ended with the same error instead of repairing the cache.
func TestIngestMendsWhenAskedTo(t *testing.T) {
	b := newDamageBed(t)
	root := filepath.Join(t.TempDir(), "copy")
	for name, bad := range map[string][]byte{
		cache.RecordName: []byte("{"),
		"FORMAT":         bytes.Repeat([]byte{'x'}, 64),
		"arena":          b.files[b.first("arena")][:4096],
	} {
		o := b.spoiled(t, root, b.first(name), bad)
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "ingest") {
			t.Errorf("%s: the server says %v, want it to name lcache ingest", name, err)
		}
		b.survives(t, o, name)
	}
}

// Regression: damaged sums kept the server from starting, although they only cost a second read of the source.
func TestSumsAreMadeAgain(t *testing.T) {
	b := newDamageBed(t)
	root := filepath.Join(t.TempDir(), "copy")
	for what, bad := range map[string][]byte{"empty": nil, "header zero": make([]byte, len(b.files[b.first(cache.SumsName)])), "cut": b.files[b.first(cache.SumsName)][:4500]} {
		o := b.spoiled(t, root, b.first(cache.SumsName), bad)
		if b.survives(t, o, "sums "+what) {
			t.Errorf("sums %s: the server refused", what)
		}
		// The log's samples are right, and only their sums were lost: ingest learns them, and does not write the samples again.
		in := b.ingest
		in.Dirs = b.spoiled(t, root, b.first(cache.SumsName), bad).Dirs
		if _, rep := ingested(t, b.dataset, in); rep.Resorted || rep.ReadSamples != int64(b.kept()) {
			t.Errorf("sums %s: ingest read %d samples of %d, sorted them: %v", what, rep.ReadSamples, b.kept(), rep.Resorted)
		}
		if rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO}); err != nil || rep.Good != rep.Samples {
			t.Errorf("sums %s: after ingest %+v, %v", what, rep, err)
		}
	}
}

// kept returns how many samples a log holds that keeps all of them. Empty samples are never stored.
func (b *damageBed) kept() (n int) {
	for _, data := range b.bytes {
		if len(data) > 0 {
			n++
		}
	}
	return n
}

// Regression: with an unreadable disk every sample counted as corrupt, and the status said that the disk had returned other bytes.
func TestReadErrorsAreNotCorruption(t *testing.T) {
	b, o := small(t, samplerJob(4, 16, 1, false))
	o.Logger = nil
	var fails atomic.Bool
	o.IO.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
			if fails.Load() && !op.Write {
				return blockio.Fault{Err: syscall.EIO}
			}
			return blockio.Fault{}
		})
	}
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	for epoch := range 3 { // from the second on the log is this process's own
		fails.Store(epoch == 2)
		if _, err := b.readRank(e, c, epoch, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := e.Status().Jobs[0]
	if s.CorruptSamples != 0 || s.StaleSamples != 0 {
		t.Errorf("%d samples count as corrupt, %d as stale: nothing on the disk is wrong", s.CorruptSamples, s.StaleSamples)
	}
	if s.Misses == 0 {
		t.Error("no misses: the disk did not fail")
	}
}

// Regression: a damaged manifest cost all samples of the log, although the source was the same. If only a name was damaged, ingest ended with an error.
func TestManifestIsListedAgain(t *testing.T) {
	b := newDamageBed(t)
	root := filepath.Join(t.TempDir(), "copy")
	whole := b.files[b.first(cache.ManifestName)]
	for what, at := range map[string]int{"header": 70, "sizes": 400, "names": len(whole) - 100, "length": -1} {
		bad := bytes.Clone(whole)
		if at < 0 {
			bad = bad[:len(bad)/2]
		} else {
			bad[at] ^= 4
		}
		o := b.spoiled(t, root, b.first(cache.ManifestName), bad)
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "run lcache ingest again") {
			t.Errorf("%s: the server says %v, want it to name lcache ingest", what, err)
		}
		in := b.ingest
		in.Dirs = o.Dirs
		if _, rep := ingested(t, b.dataset, in); rep.ReadBytes != 0 || rep.Anew || rep.Changed {
			t.Errorf("%s: %d bytes read, made again %v, changed %v; want the log unchanged", what, rep.ReadBytes, rep.Anew, rep.Changed)
		}
		e := open(t, o)
		b.right(t, e, what)
	}
}
