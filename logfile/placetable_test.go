package logfile

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/durable"
	"lcache/sample"
)

// TestPlaceTable: noted generations are read back. A table that is damaged, cut, or from another cache or version has no generations, or fewer, and is replaced.
func TestPlaceTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), placesName)
	f := Format{Block: 4096, Align: 64, UUID: [16]byte{1, 2, 3}, Places: 9}
	table := placeTable{path: path, format: f}
	if gens, err := table.read(false); err != nil || !slices.Equal(gens, make([]uint64, 9)) {
		t.Fatalf("of no table: %v, %v", gens, err)
	}
	for _, n := range []struct {
		places []uint32
		gen    uint64
	}{{[]uint32{3, 2, 7}, 5}, {[]uint32{2}, 1 << 40}} {
		if err := table.note(n.places, n.gen); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "places.hex", hex.Dump(whole))
	changed := func(at int) []byte {
		b := slices.Clone(whole)
		b[at] ^= 1
		return b
	}
	want := []uint64{0, 0, 1 << 40, 5, 0, 0, 0, 5, 0}
	for _, c := range []struct {
		what string
		data []byte
		want []uint64
		bad  bool
	}{
		{"as it was", whole, want, false},
		{"cut", whole[:56], []uint64{0, 0, 1 << 40, 0, 0, 0, 0, 0, 0}, false},
		{"longer", append(slices.Clone(whole), make([]byte, 99)...), want, false},
		{"of no magic", changed(0), make([]uint64, 9), true},
		{"of another version", changed(8), make([]uint64, 9), true},
		{"of another cache", changed(20), make([]uint64, 9), true},
		{"empty", nil, make([]uint64, 9), true},
	} {
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{true, false} {
			table := placeTable{path: path, format: f}
			if gens, err := table.read(readOnly); !slices.Equal(gens, c.want) || (err != nil) != c.bad {
				t.Errorf("a table %s, read only %v: %v, %v", c.what, readOnly, gens, err)
			}
			if readOnly {
				continue
			}
			if err := table.note([]uint32{8}, 6); err != nil {
				t.Errorf("write to a table %s: %v", c.what, err)
			}
			_ = table.close()
		}
		again := placeTable{path: path, format: f}
		if gens, err := again.read(true); err != nil || gens[8] != 6 || gens[3] != c.want[3] {
			t.Errorf("a table %s, after a write: %v, %v", c.what, gens, err)
		}
	}
}

// TestPlacesNotNoted: blocks are written although the table can't be, with one warning for any number of places. A restart finds the blocks.
func TestPlacesNotNoted(t *testing.T) {
	b := newBed(t, 1, 4096, 500, slices.Repeat([]uint32{4096}, 400))
	var said bytes.Buffer
	b.opts.Logger = slog.New(slog.NewTextHandler(&said, nil))
	b.opts.Trace = func(c durable.Change) error {
		if strings.HasPrefix(filepath.Base(c.Path), placesName) {
			return unix.ENOSPC
		}
		return nil
	}
	b.open()
	l := b.begin(0, 1, 2, 300, 400)
	for i := range sample.Index(400) {
		b.append(l, int(i)%2, i)
	}
	b.all(b.s)
	b.close()
	if n := strings.Count(said.String(), "table of places not written"); n != 1 {
		t.Errorf("%d warnings, want one", n)
	}
	b.open()
	b.all(b.s)
	b.close()
}
