package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// seen is the content of a cache's directories: bytes and times, except of the lock file, which each process writes that opens the cache.
func seen(t *testing.T, dirs []string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range dirs {
		for _, e := range list(t, dir) {
			path := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(path)
			info, statErr := os.Stat(path)
			if err != nil || statErr != nil {
				t.Fatal(err, statErr)
			}
			if e.Name() == "LOCK" {
				continue
			}
			files[path] = fmt.Sprintf("%s, %d bytes, %x", info.ModTime(), len(data), sample.Sum(data))
		}
	}
	return files
}

// touchOne changes a file of the source whose sample is right in the log.
func (b *damageBed) touchOne(t *testing.T, o Options) {
	t.Helper()
	rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if name := fmt.Sprintf("class-0/%06d.bin", i); !slices.Contains(rep.Bad, name) {
			b.write(t, name, pseudo(1, 77))
			return
		}
	}
	t.Fatal("no sample is right")
}

// sameFiles compares a cache's files with their earlier content.
func sameFiles(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, was := range before {
		if is := after[path]; is != was {
			t.Errorf("%s was %s, is %s", path, was, is)
		}
	}
	for path, is := range after {
		if before[path] == "" {
			t.Errorf("%s is new: %s", path, is)
		}
	}
}

// stopped is a cache whose server was stopped in the middle of an epoch: blocks are freed, and the journal says so.
func stopped(t *testing.T) *damageBed {
	t.Helper()
	b := damageBedOf(t, 300, ingest.Options{})
	e := open(t, b.opts)
	c := attach(t, e)
	if _, err := b.readRank(e, c, 0, 0, 20); err != nil {
		t.Fatal(err)
	}
	c.Disconnected()
	closeEngine(t, e)
	b.take(t)
	return b
}

// If a check changed the files, a second check would find something else, and the evidence would be lost.
func TestVerifyOnlyReads(t *testing.T) {
	testenv.Long(t)
	for _, c := range []struct {
		name  string
		make  func(t *testing.T) *damageBed
		spoil func(b *damageBed) (file string, data []byte)
		touch bool // a file of the source is another one than was listed
	}{
		{"damaged", newDamageBed, func(b *damageBed) (string, []byte) {
			bad := bytes.Clone(b.files[b.first("arena")])
			clear(bad[128<<10 : 256<<10])
			return b.first("arena"), bad
		}, true},
		{"torn journal", newDamageBed, func(b *damageBed) (string, []byte) {
			return b.first("journal-0"), append(bytes.Clone(b.files[b.first("journal-0")]), 1, 2, 3, 4, 5, 6, 7, 8, 9)
		}, false},
		{"damaged sums", newDamageBed, func(b *damageBed) (string, []byte) { return b.first(cache.SumsName), []byte("no sums") }, false},
		{"killed while it reordered", reordering, nil, false},
		{"stored lengths damaged", reordering, func(b *damageBed) (string, []byte) { return b.first(cache.LengthsName), nil }, false},
		{"one stored length damaged", reordering, func(b *damageBed) (string, []byte) {
			bad := bytes.Clone(b.files[b.first(cache.LengthsName)])
			bad[4096+4] ^= 1
			return b.first(cache.LengthsName), bad
		}, false},
		{"killed while it was adapted", adapting, nil, false},
		{"sums of the manifest before", adapting, func(b *damageBed) (string, []byte) { return b.first(cache.SumsName), b.before }, false},
		{"stopped while it reordered", stopped, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.make(t)
			file, data := "", []byte(nil)
			if c.spoil != nil {
				file, data = c.spoil(b)
			}
			o := b.spoiled(t, filepath.Join(t.TempDir(), "copy"), file, data)
			if c.touch {
				b.touchOne(t, o)
			}
			before := seen(t, o.Dirs)
			var first *cache.VerifyReport
			for range 2 {
				rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO, Against: b.dir})
				if err != nil {
					t.Fatal(err)
				}
				rep.Seconds = 0
				if first == nil {
					first = rep
				}
				if fmt.Sprint(rep) != fmt.Sprint(first) {
					t.Errorf("the first time %+v, the second time %+v", first, rep)
				}
				sameFiles(t, before, seen(t, o.Dirs))
			}
			if c.name == "damaged" && (first.Corrupt == 0 || first.Different == 0) {
				t.Errorf("%+v: nothing is damaged, so nothing was tried", first)
			}
		})
	}
}

// Unreadable bytes are not known to be corrupt, so they do not count as corruption.
func TestVerifyCannotRead(t *testing.T) {
	b := newDamageBed(t)
	o := b.spoiled(t, filepath.Join(t.TempDir(), "copy"), "", nil)
	o.IO.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
			if !op.Write {
				return blockio.Fault{Err: syscall.EIO}
			}
			return blockio.Fault{}
		})
	}
	rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Corrupt != 0 || rep.InLog != b.kept() || rep.Unreadable != b.kept() || len(rep.Errors) == 0 || !strings.Contains(rep.Errors[0], "input/output error") {
		t.Errorf("%+v: want %d samples that could not be read, and none that is corrupt", rep, b.kept())
	}
}

// A hung read owns its buffer: until the device answers, the buffer is neither reused nor unmapped.
func TestVerifyLeavesTheBuffersOfHungReads(t *testing.T) {
	b := damageBedOf(t, 60, ingest.Options{Dirs: twoDirs(t)})
	o := b.opts
	hold := make(chan struct{})
	var mu sync.Mutex
	held := map[*byte][]byte{} // by its first byte: a read that hangs
	defer func() { leftMapped += mapped() }()
	testenv.Allow(filepath.Dir(filepath.Dir(o.Dirs[0]))) // the folders of this test
	testenv.Allow(filepath.Dir(b.dir))
	again := 0
	o.IO.Deadline, o.IO.CloseTimeout = 70*time.Millisecond, 100*time.Millisecond
	o.IO.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
			if op.Write {
				return blockio.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			if held[&op.Buf[0]] != nil {
				again++
			}
			if filepath.Dir(op.File.Name()) == o.Dirs[1] {
				held[&op.Buf[0]] = op.Buf
				return blockio.Fault{Hold: hold}
			}
			return blockio.Fault{}
		})
	}
	rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO, Jobs: 2})
	if err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(held) == 0 {
		t.Error("nothing hung")
	}
	if again > 0 {
		t.Errorf("%d reads went to a buffer that another one owned", again)
	}
	for _, buf := range held {
		if !canBeTouched(buf) {
			t.Error("the buffer of a read that hangs was unmapped")
		}
	}
	close(hold)
	if rep.Corrupt != 0 || rep.Good+rep.Unreadable != rep.Samples {
		t.Errorf("%+v: want what did not come to be unreadable", rep)
	}
}

// canBeTouched reports whether memory is mapped.
func canBeTouched(mem []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	mem[0]++
	return
}
