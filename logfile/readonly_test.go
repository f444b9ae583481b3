package logfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/disk/blockio"
)

// contents returns the files of a cache, by path.
func (b *bed) contents() map[string]string {
	b.t.Helper()
	files := map[string]string{}
	for _, dir := range b.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				b.t.Fatal(err)
			}
			files[filepath.Join(dir, e.Name())] = string(data)
		}
	}
	return files
}

// A read-only Store finds the same samples as another Store, and changes no file: not by recovery over a torn journal, not by a probe, not by Close.
func TestReadOnly(t *testing.T) {
	b := newBed(t, 1, 4096, 20, []uint32{4096, 4096, 100, 200})
	b.open()
	l := b.begin(0, 0, 2, 10, 4)
	for i := range uint32(4) {
		b.append(l, 0, i)
	}
	b.flush(l)
	if err := l.FreeBlocks(0, 1); err != nil { // Close would record that it is freed
		t.Fatal(err)
	}
	b.close()
	journal, err := os.OpenFile(b.s.journalPath(0), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := journal.WriteString("a record that was cut off"); err != nil {
		t.Fatal(err)
	}
	journal.Close()

	before := b.contents()
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write {
			t.Errorf("a write of %d bytes, or a sync", len(op.Buf))
		}
		return blockio.Fault{}
	})
	b.opts.ReadOnly = true
	b.open()
	l = b.s.Logfiles()[0]
	if got := b.check(l)[0]; len(got) != 3 {
		t.Errorf("found %v, want three samples", got)
	}
	if _, err := l.Append(t.Context(), 1, 0, b.content(0)); !errors.Is(err, ErrReadOnly) {
		t.Errorf("append: %v", err)
	}
	if _, err := b.s.Begin(1, Header{Segments: 1, SegmentBlocks: 1}, []uint64{0, 1}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("begin: %v", err)
	}
	if err := b.s.Drop(0); !errors.Is(err, ErrReadOnly) {
		t.Errorf("drop: %v", err)
	}
	b.s.devices[0].read.put(b.s.now(), errHung)
	if b.s.probe(b.s.devices[0]); b.s.devices[0].read.isQuarantined() {
		t.Error("a device that answers stayed quarantined")
	}
	b.close()
	for path, was := range before {
		if is := b.contents()[path]; is != was {
			t.Errorf("%s was changed: %d bytes, then %d", path, len(was), len(is))
		}
	}
}
