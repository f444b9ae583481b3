package cache

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"

	"lcache/chunker"
	"lcache/internal/disk/durable"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/schedule"
	"lcache/internal/trust"
	"lcache/logfile"
	"lcache/sample"
)

// The file line-0 or line-1, all numbers little-endian (docs/format.md):
//
//	┌───────┬─────────┬─────────┬─────────┬───────────┬───────┬──────┬──────┐
//	│ magic │ version │ samples │ Logfile │ order     │ count │ kept │ rest │
//	│  8 B  │   u32   │   u32   │ key 16 B│ key 16 B  │  u64  │ u64… │ u32… │
//	└───────┴─────────┴─────────┴─────────┴───────────┴───────┴──────┴──────┘
//
// An epoch layout that does not follow from its order alone can be rebuilt only with this file. The Logfile's key is a digest of all inputs of the layout, so a damaged file, or the file of another Logfile, is detected.
const (
	lineMagic   = "lcacheLN"
	lineVersion = 1
	lineHead    = 56
)

// linePath returns the path of the file for the layout of a Logfile.
func (c *Cache) linePath(num int) string {
	return filepath.Join(c.Dirs[0], fmt.Sprintf("line-%d", num))
}

// digest returns the key of a Logfile whose layout does not follow from its order alone.
func digest(order [16]byte, starts, kept []uint64, rest []sample.Index) [16]byte {
	h := xxh3.New()
	w := bufio.NewWriterSize(h, 1<<16)
	w.Write(order[:]) // a hash never fails
	putWords(w, starts)
	putWords(w, kept)
	putIndices(w, rest)
	w.Flush()
	return h.Sum128().Bytes()
}

// putEach is the number of integers that are encoded at once.
const putEach = 1024

func putWords(w *bufio.Writer, words []uint64) {
	for some := range slices.Chunk(words, putEach) {
		b := w.AvailableBuffer()
		for _, v := range some {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		w.Write(b)
	}
}

func putIndices(w *bufio.Writer, indices []sample.Index) {
	for some := range slices.Chunk(indices, putEach) {
		b := w.AvailableBuffer()
		for _, v := range some {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		w.Write(b)
	}
}

// keptBits returns a bit for each sample that a layout keeps, outside the Go heap.
func keptBits(layout *chunker.EpochLayout) ([]uint64, error) {
	kept, err := offheap.Make[uint64]((len(layout.Segment) + 63) / 64)
	if err != nil {
		return nil, err
	}
	for i, seg := range layout.Segment {
		if seg != chunker.None {
			kept[i/64] |= 1 << (i % 64)
		}
	}
	return kept, nil
}

// noteLine prepares the file for the layout of a new Logfile, and returns the Logfile's key. It writes the file, or removes an old one that is not needed. Without the file, a restarted server uses random reads for the Logfile.
func (c *Cache) noteLine(num int, layout *chunker.EpochLayout, o *schedule.Order) ([16]byte, error) {
	if layout.OfOrder {
		if _, err := os.Lstat(c.linePath(num)); errors.Is(err, fs.ErrNotExist) {
			return o.Key, nil
		}
		return o.Key, durable.Trace(nil).Remove(c.linePath(num))
	}
	kept, err := keptBits(layout)
	if err != nil {
		return digest(o.Key, layout.Starts, nil, nil), err
	}
	defer offheap.Free(kept)
	rest := layout.Order[layout.Used:]
	key := digest(o.Key, layout.Starts, kept, rest)
	if err := os.Remove(c.linePath(num)); err != nil && !errors.Is(err, fs.ErrNotExist) { // it belongs to a dropped Logfile
		return key, err
	}
	if err := c.checkLine(lineHead + 8*int64(len(kept)) + 4*int64(len(rest))); err != nil {
		return key, err
	}
	return key, durable.Replace(c.linePath(num), func(v *durable.Version) error {
		w := bufio.NewWriterSize(v, 1<<18)
		head := append([]byte(lineMagic), make([]byte, lineHead-len(lineMagic))...)
		binary.LittleEndian.PutUint32(head[8:], lineVersion)
		binary.LittleEndian.PutUint32(head[12:], uint32(len(layout.Segment)))
		copy(head[16:], key[:])
		copy(head[32:], o.Key[:])
		binary.LittleEndian.PutUint64(head[48:], uint64(len(rest)))
		w.Write(head) // Flush returns the writer's first error
		putWords(w, kept)
		putIndices(w, rest)
		return w.Flush()
	})
}

// OrderKey returns the key of the order from which a Logfile's layout was made, as far as the cache's files have it.
func (c *Cache) OrderKey(l *logfile.Logfile) [16]byte {
	f, err := trust.Open(c.linePath(l.Num()), os.O_RDONLY)
	if err != nil {
		return l.Header().Key
	}
	defer f.Close()
	if _, order, err := c.lineHead(f, l); err == nil {
		return order
	}
	return l.Header().Key
}

var errOtherLine = errors.New("it belongs to another Logfile")

// lineHead reads the header of a layout's file. It returns the number of unused samples, and the key of the order.
func (c *Cache) lineHead(f *os.File, l *logfile.Logfile) (count int, order [16]byte, err error) {
	var head [lineHead]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return 0, order, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, order, err
	}
	n := c.Manifest.Len()
	rest := binary.LittleEndian.Uint64(head[48:])
	h := l.Header()
	if string(head[:8]) != lineMagic || binary.LittleEndian.Uint32(head[8:]) != lineVersion || binary.LittleEndian.Uint32(head[12:]) != uint32(n) || [16]byte(head[16:32]) != h.Key ||
		rest > uint64(n) || info.Size() != int64(lineHead)+8*int64((n+63)/64)+4*int64(rest) {
		return 0, order, errOtherLine
	}
	return int(rest), [16]byte(head[32:48]), nil
}

// restoreEpochLayout rebuilds the layout of a Logfile from its file; nil if that is missing or wrong.
func (c *Cache) restoreEpochLayout(l *logfile.Logfile, o *schedule.Order) (*chunker.EpochLayout, error) {
	f, err := trust.Open(c.linePath(l.Num()), os.O_RDONLY)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	count, order, err := c.lineHead(f, l)
	if err != nil || order != o.Key {
		return nil, nil
	}
	kept, err := offheap.Make[uint64]((c.Manifest.Len() + 63) / 64)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(kept)
	rest, err := offheap.Make[sample.Index](count)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(rest)
	r := bufio.NewReaderSize(f, 1<<18)
	var b [8]byte
	for i := range kept {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return nil, nil
		}
		kept[i] = binary.LittleEndian.Uint64(b[:])
	}
	for i := range rest {
		if _, err := io.ReadFull(r, b[:4]); err != nil {
			return nil, nil
		}
		rest[i] = binary.LittleEndian.Uint32(b[:])
	}
	h := l.Header()
	if digest(order, h.Starts, kept, rest) != h.Key {
		return nil, nil
	}
	has := func(i sample.Index) bool { return kept[i/64]&(1<<(i%64)) != 0 }
	layout, err := chunker.RestoreEpochLayout(o.Chunks, o.Ranks, c.Manifest.Len(), h.Starts, has, rest)
	if layout != nil {
		keeps := c.Placement()
		for i := range c.Manifest.Len() {
			layout.Chosen = layout.Chosen || has(sample.Index(i)) != keeps.Keeps(sample.Index(i))
		}
	}
	return layout, err
}
