package logfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/sample"

	"lcache/internal/disk/offheap"
	"lcache/internal/testenv"
)

// counts are the resources that each test must return.
var counts = []testenv.Count{{What: "bytes outside the heap", Now: offheap.Mapped}, {What: "registered bytes", Now: blockio.Registered}}

func TestMain(m *testing.M) { os.Exit(testenv.Run(m, counts...)) }

// bed is a small cache in a temporary directory, and the means to break it.
type bed struct {
	t      testing.TB
	dirs   []string
	format Format
	sizes  []uint32
	opts   Options
	s      *Store

	mu   sync.Mutex
	lost map[sample.Index]int
}

// openIO opens the engine that LCACHE_IO and LCACHE_DIRECT name, so that the suite can be run in each mode.
func openIO(t testing.TB) *blockio.IO { return openIODepth(t, 0) }

func openIODepth(t testing.TB, depth int) *blockio.IO {
	t.Helper()
	io, err := blockio.Open(blockio.Options{Engine: os.Getenv("LCACHE_IO"), Direct: os.Getenv("LCACHE_DIRECT"), Depth: depth})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { io.Close() })
	return io
}

func newBed(t testing.TB, dirs, block, places int, sizes []uint32) *bed {
	t.Helper()
	testenv.Check(t, counts...)
	b := &bed{t: t, sizes: sizes, lost: map[sample.Index]int{}}
	b.format = Format{Block: block, Align: 64, UUID: [16]byte{1, 2, 3}, Places: places}
	root := t.TempDir()
	for i := range dirs {
		b.dirs = append(b.dirs, filepath.Join(root, string(rune('a'+i))))
	}
	if err := Create(b.dirs, b.format); err != nil {
		t.Fatal(err)
	}
	b.opts = Options{IO: openIO(t), Sizes: sizes, Fingerprint: sample.Fingerprint{9}, Spare: 4, Lost: b.noteLost}
	return b
}

func (b *bed) noteLost(l *Logfile, seg int, indices []sample.Index, offsets []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range indices {
		b.lost[i]++
	}
}

func (b *bed) losses() map[sample.Index]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[sample.Index]int{}
	for k, v := range b.lost {
		out[k] = v
	}
	return out
}

func (b *bed) open() *Store {
	b.t.Helper()
	s, err := Open(b.dirs, b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.s = s
	return s
}

// close checks the free list, and that a clean stop is clean.
func (b *bed) close() {
	b.t.Helper()
	b.s.SetNoFrees(true) // as Close does: a block that waits for a place would wait without end
	b.books()
	if err := b.s.Close(); err != nil {
		b.t.Errorf("close: %v", err)
	}
	if n := len(b.s.outgrown); n > 0 {
		b.t.Errorf("buffers of %d pools did not come back", n)
	}
}

// crashed is a cache with the current files, as a process finds them that starts after this one was killed.
func (b *bed) crashed() *bed {
	b.t.Helper()
	b.s.flushJournals()
	c := &bed{t: b.t, format: b.format, sizes: b.sizes, opts: b.opts, lost: map[sample.Index]int{}}
	c.opts.Lost = c.noteLost
	root := b.t.TempDir()
	for _, dir := range b.dirs {
		to := filepath.Join(root, filepath.Base(dir))
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			b.t.Fatal(err)
		}
		c.dirs = append(c.dirs, to)
	}
	return c
}

func (b *bed) begin(slot int, epoch uint32, segments, blocks, room int) *Logfile {
	b.t.Helper()
	starts := make([]uint64, segments+1)
	for k := range starts {
		starts[k] = uint64(k * room)
	}
	l, err := b.s.Begin(slot, Header{Fingerprint: b.opts.Fingerprint, Key: [16]byte{7}, Epoch: epoch, Segments: uint32(segments), SegmentBlocks: uint32(blocks)}, starts)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// content returns the bytes of a sample: they follow from its index. No other goroutine has them yet, so the race detector need not check each.
//
//go:norace
func (b *bed) content(i sample.Index) []byte {
	buf := make([]byte, b.sizes[i]+8)
	r := rand.NewPCG(uint64(i), 5)
	for k := 0; k+8 <= len(buf); k += 8 {
		binary.LittleEndian.PutUint64(buf[k:], r.Uint64())
	}
	return buf[:b.sizes[i]]
}

func (b *bed) append(l *Logfile, seg int, i sample.Index) uint64 {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	off, err := l.Append(ctx, seg, i, b.content(i))
	if err != nil {
		b.t.Fatalf("append %d: %v", i, err)
	}
	return off
}

func aligned(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := blockio.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blockio.Free(mem) })
	return mem
}

// readBlock waits for ReadBlock.
func readBlock(l *Logfile, seg, j int, dst []byte) error {
	c := make(chan error, 1)
	l.ReadBlock(seg, j, dst, func(err error) { c <- err })
	return <-c
}

// check reads every arrival of l, with random reads and by block, compares it with its content, and returns the indices by segment.
func (b *bed) check(l *Logfile) (found map[int][]sample.Index) {
	b.t.Helper()
	found = map[int][]sample.Index{}
	largest := uint32(0)
	for _, n := range b.sizes {
		largest = max(largest, n)
	}
	buf := aligned(b.t, Span(4095, int(largest))+unit)
	w := b.format.Block
	for seg := range int(l.Header().Segments) {
		whole := aligned(b.t, max(1, l.Blocks(seg))*w)
		bad := map[int]bool{}
		for j := range l.Blocks(seg) {
			if err := readBlock(l, seg, j, whole[j*w:(j+1)*w]); err != nil {
				bad[j] = true
			}
		}
		end := uint64(0)
		l.Arrivals(seg, func(ord int, i sample.Index, off uint64) bool {
			want := b.content(i)
			data, err := l.Read(b.t.Context(), seg, off, len(want), buf)
			if err != nil || !bytes.Equal(data, want) {
				b.t.Errorf("segment %d sample %d at %d: read with random reads: %v, equal %v", seg, i, off, err, bytes.Equal(data, want))
			}
			if !bytes.Equal(whole[off:off+uint64(len(want))], want) {
				b.t.Errorf("segment %d sample %d at %d: blocks hold other bytes (bad blocks %v)", seg, i, off, bad)
			}
			if pad := whole[off+uint64(len(want)) : off+b.format.pad(len(want))]; bytes.Count(pad, []byte{0}) != len(pad) {
				b.t.Errorf("segment %d sample %d at %d: padding holds old bytes of the buffer, want zeros", seg, i, off)
			}
			if off < end {
				b.t.Errorf("segment %d sample %d at %d overlaps the one before", seg, i, off)
			}
			end = off + uint64(len(want))
			found[seg] = append(found[seg], i)
			return true
		})
	}
	return found
}

// books checks that every place is either free or held by exactly one block, or by the tails that share it.
func (b *bed) books() {
	b.t.Helper()
	if err := b.s.CheckPlaces(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

// randomSizes draws n lengths between 1 and most, with the borders of blocks among them.
func randomSizes(n, block, most int, seed uint64) []uint32 {
	r := rand.New(rand.NewPCG(seed, 1))
	sizes := make([]uint32, n)
	for i := range sizes {
		switch r.IntN(8) {
		case 0:
			sizes[i] = uint32(min(most, block+r.IntN(3)-1))
		case 1:
			sizes[i] = uint32(1 + r.IntN(64))
		case 2:
			sizes[i] = uint32(most - r.IntN(3))
		default:
			sizes[i] = uint32(1 + r.IntN(most))
		}
	}
	return sizes
}

func isErr(err, target error) bool { return errors.Is(err, target) }
