// Package fetchtest is a small cache in a temporary directory, for the tests of fetch and of packages above it: a directory
// as the source, its manifest and sums, a store with real files, shared memory and a Fetcher over all of them.
//
// New makes a Bed for samples of given sizes. Fill puts samples into a Logfile. The right bytes of a sample follow
// from its index. At the end of the test everything is closed, and memory that is still held is an error. The Source
// of a Bed counts reads, and can be made to hang or fail. The caller provides the I/O engine, with its faults.
package fetchtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/compress"
	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// Align is the alignment of samples in segments and slots.
const Align = 64

// Options configure New. Sizes and Log.IO are required.
type Options struct {
	Sizes      []uint32
	Log        logfile.Options // IO is the caller's; Sizes, Fingerprint and Lost are filled in
	Block      int             // 0: 4096
	Packed     bool            // two of three samples are compressible, and are compressed in the log
	MostPacked uint32          // with Packed: larger samples are stored as they are; 0: no limit
	Places     int             // of the arena; 0: twice the number of blocks of all samples, plus 64
	Staging    staging.Options // Samples and Align are filled in; no slots: one slot of a block
	Fetch      fetch.Options   // Jobs and timeouts
}

// Bed is described in the package comment.
type Bed struct {
	Sizes     []uint32
	Dir       string // of the source
	CacheDir  string
	Source    *Source
	Manifest  *sample.Manifest
	Sums      *sample.Sums
	Lengths   *sample.Lengths // with Packed
	Form      *compress.Form  // with Packed
	Store     *logfile.Store
	Locations *metaindex.Locations
	Staging   *staging.Staging
	Fetcher   *fetch.Fetcher
	Logger    *slog.Logger

	t      testing.TB
	packed bool
	known  sync.Map // the right content of each sample that Is has checked

	mu        sync.Mutex // guards the fields that follow
	recovered [3]bool    // packages last
	lost      map[sample.Index]int
}

// New makes a Bed that ends with the test.
func New(t testing.TB, o Options) *Bed {
	t.Helper()
	root := t.TempDir()
	b := &Bed{t: t, packed: o.Packed, Sizes: o.Sizes, Dir: testenv.SourceDir(t), CacheDir: filepath.Join(root, "cache"), lost: map[sample.Index]int{},
		Logger: slog.New(slog.DiscardHandler)}
	b.makeSource(filepath.Join(root, "manifest"), filepath.Join(root, "sums"))
	if o.Packed {
		b.openForm(filepath.Join(root, "stored"), cmp.Or(o.MostPacked, math.MaxUint32))
	}
	b.openStore(o)
	var err error
	if b.Locations, err = metaindex.NewLocations(len(o.Sizes), Align); err != nil {
		t.Fatal(err)
	}
	o.Staging.Samples, o.Staging.Align = len(o.Sizes), Align
	if o.Staging.Slots == 0 {
		o.Staging.Slots, o.Staging.SlotBytes = 1, 4096
	}
	if b.Staging, err = staging.New(o.Staging); err != nil {
		t.Fatal(err)
	}
	f := o.Fetch
	f.Staging, f.Locations, f.Manifest, f.Sums, f.Source, f.Logger = b.Staging, b.Locations, b.Manifest, b.Sums, b.Source, b.Logger
	if f.Form = b.Form; f.PackedBytes == 0 {
		f.PackedBytes = 16 << 20
	}
	if f.Logfile == nil {
		f.Logfile = b.Store.Log
	}
	f.Recovered = b.isRecovered
	b.Fetcher = fetch.New(f)
	t.Cleanup(func() { b.close(o.Staging) })
	return b
}

func (b *Bed) makeSource(manifest, sums string) {
	b.t.Helper()
	for i := range b.Sizes {
		if err := os.WriteFile(filepath.Join(b.Dir, b.Name(sample.Index(i))), b.Content(sample.Index(i)), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	dir, err := source.Open(b.Dir, source.Options{Flat: true})
	if err != nil {
		b.t.Fatal(err)
	}
	b.Source = &Source{Source: dir, reads: map[string]int{}}
	_, entries, err := dir.List(context.Background(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	print, err := sample.WriteManifest(manifest, nil, entries)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.Manifest, err = sample.OpenManifest(manifest); err != nil {
		b.t.Fatal(err)
	}
	if b.Sums, err = sample.OpenSums(sums, print, len(b.Sizes)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Bed) openForm(path string, mostPacked uint32) {
	b.t.Helper()
	var err error
	if b.Lengths, err = sample.OpenLengths(path, b.Manifest.Fingerprint(), b.Sizes); err != nil {
		b.t.Fatal(err)
	}
	b.Form = compress.New(b.Sizes, b.Lengths, Align, 1<<40, mostPacked)
}

func (b *Bed) openStore(o Options) {
	b.t.Helper()
	if o.Block == 0 {
		o.Block = 4096
	}
	if o.Places == 0 {
		total := 0
		for _, n := range b.Sizes {
			total += (int(n) + Align - 1) / Align * Align
		}
		o.Places = 2*total/o.Block + 64
	}
	if err := logfile.Create([]string{b.CacheDir}, logfile.Format{Block: o.Block, Align: Align, UUID: [16]byte{1}, Places: o.Places}); err != nil {
		b.t.Fatal(err)
	}
	o.Log.Sizes, o.Log.Fingerprint, o.Log.Lost = b.Sizes, b.Manifest.Fingerprint(), b.noteLost
	if b.Form != nil {
		o.Log.Sizes = b.Lengths.All()
	}
	var err error
	if b.Store, err = logfile.Open([]string{b.CacheDir}, o.Log); err != nil {
		b.t.Fatal(err)
	}
}

// close checks that nothing is held, and closes everything in reverse order.
func (b *Bed) close(o staging.Options) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.Fetcher.Close(ctx); err != nil {
		b.t.Errorf("close the fetcher: %v", err)
	}
	b.CheckIdle(o)
	if err := b.Store.CheckPlaces(ctx); err != nil {
		b.t.Error(err)
	}
	if err := b.Store.Close(); err != nil {
		b.t.Logf("close the store: %v", err) // after faults of the test
	}
	b.Staging.Close()
	b.Locations.Free()
	if err := b.Sums.Close(); err != nil {
		b.t.Error(err)
	}
	if b.Lengths != nil {
		if err := b.Lengths.Close(); err != nil {
			b.t.Error(err)
		}
	}
	if err := b.Manifest.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.Source.Close(); err != nil {
		b.t.Error(err)
	}
}

// CheckIdle fails a test that ends while a slot or other memory is held. Every test calls it at its end.
func (b *Bed) CheckIdle(o staging.Options) {
	b.t.Helper()
	for b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, f func(sample.Index)) {
		for i := range b.Sizes {
			f(sample.Index(i))
		}
	}) > 0 {
	}
	b.Staging.Holders(func(owner staging.Segment, refs int) {
		b.t.Errorf("the slot of %+v can't be taken back: held %d times", owner, refs)
	})
	for pool, n := range map[staging.Pool]int{staging.Miss: o.MissBytes, staging.Side: o.SideBytes, staging.Spare: o.SpareBytes} {
		if n == 0 {
			continue
		}
		x, ok := b.Staging.Alloc(pool, 0, n)
		if !ok {
			b.t.Errorf("pool %d of %d bytes is not all free: %d bytes of side memory are used", pool, n, b.Staging.SideUsed())
			continue
		}
		b.Staging.Drop(x)
	}
	if err := b.Staging.CheckReleased(); err != nil {
		b.t.Error(err)
	}
}

// Name returns the name of a sample in the source. Names sort like indices.
func (b *Bed) Name(i sample.Index) string { return fmt.Sprintf("sample-%06d", i) }

// Content returns the right bytes of a sample.
func (b *Bed) Content(i sample.Index) []byte { return Content(i, b.Sizes[i], b.packed && i%3 != 0) }

// Content is the bytes of a sample of some size, which may be compressible. Nobody else knows them before it returns: the race detector need not look at each.
//
//go:norace
func Content(i sample.Index, size uint32, words bool) []byte {
	buf := make([]byte, size+8)
	r := rand.NewPCG(uint64(i), 17)
	for k := 0; k+8 <= len(buf); k += 8 {
		v := r.Uint64()
		if words {
			v &= 0xff // seven bytes of eight are zero
		}
		binary.LittleEndian.PutUint64(buf[k:], v)
	}
	return buf[:size]
}

// Is reports whether data is the right content of sample i, and fails the test if not.
func (b *Bed) Is(i sample.Index, data []byte) bool {
	b.t.Helper()
	known, ok := b.known.Load(i)
	if !ok {
		known, _ = b.known.LoadOrStore(i, b.Content(i))
	}
	if !bytes.Equal(data, known.([]byte)) {
		b.t.Errorf("sample %d: %d bytes that are not the source's", i, len(data))
		return false
	}
	return true
}

// Know records the checksums of all samples, as an ingest does.
func (b *Bed) Know() {
	for i := range b.Sizes {
		b.Sums.Set(sample.Index(i), sample.Sum(b.Content(sample.Index(i))))
	}
}

// Begin starts an empty Logfile.
func (b *Bed) Begin(slot int, starts []uint64, segmentBlocks int) *logfile.Logfile {
	b.t.Helper()
	l, err := b.Store.Begin(slot, logfile.Header{Fingerprint: b.Manifest.Fingerprint(), Key: [16]byte{byte(slot)}, Segments: uint32(len(starts) - 1),
		SegmentBlocks: uint32(segmentBlocks)}, starts)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// Fill appends samples to a segment, and publishes their locations and checksums.
func (b *Bed) Fill(l *logfile.Logfile, seg int, indices ...sample.Index) {
	b.t.Helper()
	for _, i := range indices {
		data := b.Content(i)
		var off uint64
		b.stored(i, func(stored []byte) (err error) {
			off, err = l.Append(context.Background(), seg, i, stored)
			return err
		})
		b.Sums.Set(i, sample.Sum(data))
		b.Locations.Set(i, b.Locations.At(l.Num(), seg, off))
	}
}

// Pack puts samples into a package, and publishes their locations and checksums. It returns the numbers of their
// packages.
func (b *Bed) Pack(p *logfile.Packages, lane int, indices ...sample.Index) (numbers []int) {
	b.t.Helper()
	for _, i := range indices {
		var number int
		var off uint64
		b.stored(i, func(stored []byte) (err error) {
			number, off, err = p.Put(context.Background(), lane, i, stored)
			return err
		})
		b.Sums.Set(i, sample.Sum(b.Content(i)))
		b.Locations.Set(i, b.Locations.At(p.Log().Num(), number, off))
		numbers = append(numbers, number)
	}
	return numbers
}

// stored calls f with the stored bytes of a sample.
func (b *Bed) stored(i sample.Index, f func(data []byte) error) {
	b.t.Helper()
	var err error
	if b.Form == nil {
		err = f(b.Content(i))
	} else {
		err = b.Form.Pack(context.Background(), i, b.Content(i), f)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// Scramble inverts the bytes of a sample at all of its locations on disk, and returns their number.
func (b *Bed) Scramble(i sample.Index) (places int) {
	b.t.Helper()
	path := filepath.Join(b.CacheDir, "arena")
	arena, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	var content []byte
	b.stored(i, func(data []byte) error { content = bytes.Clone(data); return nil })
	key := content[:min(len(content), 64)]
	for at := bytes.Index(arena, key); at >= 0; {
		if _, err := f.WriteAt([]byte{^content[len(key)/2]}, int64(at+len(key)/2)); err != nil {
			b.t.Fatal(err)
		}
		places++
		next := bytes.Index(arena[at+1:], key)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return places
}

// SetRecovered sets whether an earlier process wrote the Logfile of a slot.
func (b *Bed) SetRecovered(slot int, yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recovered[slot] = yes
}

func (b *Bed) isRecovered(slot int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recovered[slot]
}

// Lost returns how often the store reported each sample as lost.
func (b *Bed) Lost() map[sample.Index]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := map[sample.Index]int{}
	for i, n := range b.lost {
		lost[i] = n
	}
	return lost
}

// noteLost makes the samples of a lost block misses.
func (b *Bed) noteLost(l *logfile.Logfile, seg int, indices []sample.Index, offsets []uint64) {
	for k, i := range indices {
		b.Locations.Clear(i, b.Locations.At(l.Num(), seg, offsets[k]))
		b.mu.Lock()
		b.lost[i]++
		b.mu.Unlock()
	}
}

// OpenIO opens the engine of LCACHE_IO and LCACHE_DIRECT, so that the suite can run in each mode.
func OpenIO(t testing.TB) *blockio.IO {
	t.Helper()
	direct := os.Getenv("LCACHE_DIRECT")
	io, err := blockio.Open(blockio.Options{Engine: os.Getenv("LCACHE_IO"), Direct: direct})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { io.Close() })
	return io
}

// HoldReads makes disk reads hang until release is called.
func HoldReads(t testing.TB, io *blockio.IO, match func(n int64) bool) (release func()) {
	t.Helper()
	c := make(chan struct{})
	release = sync.OnceFunc(func() { close(c) })
	t.Cleanup(release)
	var n atomic.Int64
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf != nil && !op.Write && match(n.Add(1)-1) {
			return blockio.Fault{Hold: c}
		}
		return blockio.Fault{}
	})
	return release
}
