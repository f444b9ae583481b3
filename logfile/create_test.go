package logfile

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

func TestFormatFlippedAtEveryByte(t *testing.T) {
	f := Format{Block: 1 << 20, Align: 8, UUID: [16]byte{5, 6}, Places: 77}
	whole := encodeFormat(f, 1, 3)
	got, dir, dirs, err := decodeFormat(whole)
	if err != nil || got != f || dir != 1 || dirs != 3 {
		t.Fatalf("got %+v, %d of %d, %v", got, dir, dirs, err)
	}
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		_, _, _, err := decodeFormat(bad)
		if err == nil {
			t.Errorf("byte %d flipped: no error", i)
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
		if i >= 56 {
			continue
		}
		binary.LittleEndian.PutUint64(bad[56:], xxh3.Hash(bad[:56]))
		_, _, _, err = decodeFormat(bad)
		if isVersion := i >= 8 && i < 12; errors.Is(err, ErrVersion) != isVersion {
			t.Errorf("byte %d written wrong: %v", i, err)
		}
	}
	for n := range whole {
		if _, _, _, err := decodeFormat(whole[:n]); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
	}
	golden(t, "FORMAT.hex", strings.ReplaceAll(hex.Dump(whole), "  |", " |"))
}

func TestCreateAndOpenRefuse(t *testing.T) {
	b := newBed(t, 2, 4096, 9, []uint32{1})
	if err := Create(b.dirs, b.format); !isErr(err, ErrExists) {
		t.Errorf("over a cache: %v", err)
	}
	var noSpace *NoSpaceError
	huge := b.format
	huge.Places = 1 << 31
	if err := Create([]string{t.TempDir()}, huge); !errors.As(err, &noSpace) || noSpace.Need != 4096<<31 {
		t.Errorf("8 TiB: %v", err)
	}
	for name, f := range map[string]Format{
		"block":  {Block: 5000, Align: 64, UUID: [16]byte{1}, Places: 1},
		"align":  {Block: 4096, Align: 16, UUID: [16]byte{1}, Places: 1},
		"uuid":   {Block: 4096, Align: 64, Places: 1},
		"places": {Block: 4096, Align: 64, UUID: [16]byte{1}},
	} {
		if err := Create([]string{t.TempDir()}, f); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, "s")[:4]) {
			t.Errorf("wrong %s: %v", name, err)
		}
	}
	for name, dirs := range map[string][]string{
		"order": {b.dirs[1], b.dirs[0]}, "one missing": b.dirs[:1], "none": nil, "empty": {t.TempDir()},
	} {
		if _, err := Open(dirs, b.opts); err == nil {
			t.Errorf("opened with directories wrong: %s", name)
		}
	}
	other := newBed(t, 2, 4096, 9, nil)
	mixed := []string{b.dirs[0], filepath.Join(t.TempDir(), "x")}
	os.CopyFS(mixed[1], os.DirFS(other.dirs[1]))
	f := other.format
	f.UUID[0]++
	os.WriteFile(filepath.Join(mixed[1], "FORMAT"), encodeFormat(f, 1, 2), 0o600)
	if _, err := Open(mixed, b.opts); err == nil {
		t.Error("opened the directories of two caches as one")
	}
	if err := os.Truncate(filepath.Join(b.dirs[1], "arena"), 4096); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(b.dirs, b.opts); err != nil {
		t.Errorf("a short arena, one of two: %v", err)
	} else if d := s.Devices()[1]; d.State != DeviceAside || !strings.Contains(d.LastError, "cut short") || s.Close() != nil {
		t.Errorf("a short arena, one of two: %+v", d)
	}
	if err := os.Truncate(filepath.Join(b.dirs[0], "arena"), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(b.dirs, b.opts); err == nil || strings.Count(err.Error(), "cut short") != 2 {
		t.Errorf("no arena that can be used: %v", err)
	}
	link := t.TempDir()
	os.Symlink(filepath.Join(b.dirs[0], "FORMAT"), filepath.Join(link, "FORMAT"))
	if _, err := Open([]string{link}, b.opts); !isErr(err, unix.ELOOP) {
		t.Errorf("a link: %v", err)
	}
}

// A Create that was interrupted before FORMAT was written can be repeated.
func TestCreateAfterInterruption(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "arena"), make([]byte, 999999), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Format{Block: 4096, Align: 8, UUID: [16]byte{1}, Places: 4}
	if err := Create([]string{dir}, f); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "arena")); err != nil || st.Size() != 4*4096 {
		t.Errorf("the arena has %v, %v", st.Size(), err)
	}
}
