package logfile

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/sample"

	"golang.org/x/sys/unix"
)

// A Logfile of another manifest is read by the present manifest's indices: removed samples are not reported, the others have their own bytes, and nothing
// can be appended. It can be moved, block by block, into a Logfile of the present manifest. After a crash during that, both exist.
func TestOlderManifest(t *testing.T) {
	const n, segments, w = 200, 4, 4096
	b := newBed(t, 2, w, 600, randomSizes(n, w, 2*w, 3))
	b.open()
	l := b.begin(0, 3, segments, 120, n)
	for i := range uint32(n) {
		b.append(l, int(i)%segments, i)
	}
	b.close()

	// The new manifest: every third sample is removed or changed, the others have other indices, and some are new.
	r := rand.New(rand.NewPCG(8, 8))
	was := map[sample.Index]sample.Index{}
	to := make([]sample.Index, n)
	var sizes []uint32
	for _, i := range r.Perm(n) {
		if to[i] = sample.None; i%3 == 0 {
			continue
		}
		if i%5 == 0 {
			sizes = append(sizes, 77)
		}
		to[i] = uint32(len(sizes))
		was[to[i]] = uint32(i)
		sizes = append(sizes, b.sizes[i])
	}
	old := &bed{sizes: b.sizes}
	b.sizes, b.opts.Sizes, b.opts.Fingerprint = sizes, sizes, sample.Fingerprint{10}
	b.opts.Older = func(print sample.Fingerprint) (*Older, error) {
		if print != (sample.Fingerprint{9}) {
			return nil, nil
		}
		return &Older{Sizes: old.sizes, To: to}, nil
	}
	content := func(i sample.Index) []byte { return old.content(was[i]) }
	s := b.open()
	if l = s.Logfiles()[0]; l == nil || !l.IsOlder() {
		t.Fatal("the older logfile is not there")
	}
	if _, err := l.Append(context.Background(), 0, 0, make([]byte, sizes[0])); err == nil || !strings.Contains(err.Error(), "older manifest") {
		t.Errorf("append: %v", err)
	}
	target := b.begin(1, 0, 1, 400, len(sizes))
	buf := aligned(t, Span(4095, 2*w)+unit)
	moved := 0
	move := func(seg int) {
		l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
			data, err := l.Read(t.Context(), seg, off, int(sizes[i]), buf)
			if err != nil || !bytes.Equal(data, content(i)) {
				t.Errorf("sample %d: %v, or other bytes", i, err)
			}
			if _, err := target.Append(t.Context(), 0, i, data); err != nil {
				t.Error(err)
			}
			moved++
			return true
		})
		l.FreeSegment(seg)
	}
	move(0)
	move(1)
	if err := target.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := b.crashed()
	ks := killed.open()
	found := map[sample.Index]int{}
	for _, l := range ks.Logfiles() {
		for seg := range int(l.Header().Segments) {
			l.Arrivals(seg, func(_ int, i sample.Index, _ uint64) bool { found[i]++; return true })
		}
	}
	if len(found) < len(was)-3 { // the samples of the open buffer, whose places may be taken
		t.Errorf("after a crash %d samples are found, %d were there", len(found), len(was))
	}
	killed.books()
	killed.close()
	move(2)
	move(3)
	if moved != len(was) || !l.Empty() {
		t.Errorf("%d samples written on, want %d; empty: %v", moved, len(was), l.Empty())
	}
	if err := s.Drop(0); err != nil {
		t.Fatal(err)
	}
	b.books()
	if len(b.losses()) != 0 {
		t.Errorf("lost %v", b.losses())
	}
	b.close()
}

// Damage to a removed sample is not reported.
func TestOlderManifestLosses(t *testing.T) {
	b := newBed(t, 1, 4096, 40, []uint32{1000, 9000, 1000})
	b.open()
	l := b.begin(0, 0, 1, 8, 3)
	for i := range uint32(3) {
		b.append(l, 0, i)
	}
	b.close()
	b.opts.Sizes, b.opts.Fingerprint = []uint32{1000}, sample.Fingerprint{10}
	b.opts.Older = func(sample.Fingerprint) (*Older, error) {
		return &Older{Sizes: b.sizes, To: []sample.Index{sample.None, sample.None, 0}}, nil
	}
	s := b.open()
	defer b.close()
	l = s.Logfiles()[0]
	for seq := range l.Blocks(0) {
		l.loseTail(0, seq, l.segs[0].blocks[seq].place, unix.EIO)
	}
	if got := b.losses(); len(got) != 1 || got[0] != 1 {
		t.Errorf("lost %v, want the one sample that is left, once", got)
	}
}

func TestGrow(t *testing.T) {
	const w = 4096
	b := newBed(t, 2, w, 5, []uint32{w, w, w, w, w, w, w})
	b.open()
	l := b.begin(0, 0, 1, 9, 9)
	for i := range uint32(5) {
		b.append(l, 0, i)
	}
	b.close()
	if err := Grow(b.dirs, 4); err == nil {
		t.Error("grown to less")
	}
	if err := Grow(b.dirs, 1<<36); err == nil {
		t.Error("grown beyond all disks")
	}
	// Interrupted between the two FORMATs: the smaller number counts, and Grow can be repeated.
	first, err := os.ReadFile(filepath.Join(b.dirs[0], formatName))
	if err != nil {
		t.Fatal(err)
	}
	if err := Grow(b.dirs, 8); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dirs[0], formatName), first, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := ReadFormat(b.dirs); err != nil || f != b.format {
		t.Errorf("half grown: %+v, %v", f, err)
	}
	if err := Grow(b.dirs, 8); err != nil {
		t.Fatal(err)
	}
	b.format.Places = 8
	s := b.open()
	l = s.Logfiles()[0]
	for i := uint32(5); i < 7; i++ {
		b.append(l, 0, i)
	}
	if got := b.check(l)[0]; len(got) != 7 {
		t.Errorf("%v are there, want 7 samples", got)
	}
	b.books()
	b.close()
}

func TestReprint(t *testing.T) {
	b := newBed(t, 1, 4096, 20, []uint32{100, 5000, 300})
	b.open()
	l := b.begin(1, 2, 2, 5, 3)
	for i := range uint32(3) {
		b.append(l, int(i)%2, i)
	}
	b.close()
	to := sample.Fingerprint{11}
	if err := Reprint(b.dirs, sample.Fingerprint{8}, to); err != nil { // another one's
		t.Fatal(err)
	}
	if err := Reprint(b.dirs, b.opts.Fingerprint, to); err != nil {
		t.Fatal(err)
	}
	b.opts.Fingerprint = to
	s := b.open()
	defer b.close()
	l = s.Logfiles()[1]
	if l == nil || l.IsOlder() || l.Header().Epoch != 2 {
		t.Fatal("not the logfile that was there")
	}
	found := b.check(l)
	if len(found[0]) != 2 || len(found[1]) != 1 {
		t.Errorf("found %v", found)
	}
	b.books()
}
