package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/store/cachedir"
	"lcache/sample"
	"lcache/source"
)

// ReadOptions of Read.
type ReadOptions struct {
	Source   string        // as given to ingest
	Remote   source.Remote // settings of a source over a network
	Records  source.RecordFlags
	Stream   bool          // shards that are packed are allowed
	Time     time.Duration // for all of it; 0: 30 s
	Progress func(stage string)
	Logger   *slog.Logger
}

// Reading says how fast a source's files can be read without lcache.
type Reading struct {
	Source  string          `json:"source"`
	Kind    string          `json:"file_system"` // of a source over a network: S3 or HTTP
	Nature  cachedir.Nature `json:"nature"`
	Files   int             `json:"files"`
	Bytes   int64           `json:"bytes"`
	Listing float64         `json:"listing_seconds"`
	Readers []Reader        `json:"readers"` // with 1 reader, and with manyReaders at once
}

// Reader has the result of a number of concurrent readers. Each read whole files in random order.
type Reader struct {
	Readers int     `json:"readers"`
	Files   int64   `json:"files"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Failed  int64   `json:"failed"`     // files that could not be read
	Disk    int64   `json:"disk_bytes"` // read from a block device of this machine; the others came from memory or a network
}

// BytesPerSecond returns the rate.
func (r Reader) BytesPerSecond() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Seconds
}

const manyReaders = 32

func (o ReadOptions) open() (source.Source, error) {
	return source.Open(o.Source, source.Options{Remote: o.Remote, Stream: o.Stream, Records: o.Records})
}

// Read lists a source and reads its files for a time, first with one reader, then with 32. It asks the kernel to drop each file from the page
// cache before it reads the file. Names and inodes stay in memory: only root can drop these. A source over a network is read as ingest reads it.
func Read(ctx context.Context, o ReadOptions) (r *Reading, err error) {
	if o.Time == 0 {
		o.Time = 30 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	began := time.Now()
	src, err := o.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	entries, err := list(ctx, src, o)
	if err != nil {
		return nil, err
	}
	r = &Reading{Source: src.String(), Files: len(entries), Listing: time.Since(began).Seconds()}
	for _, e := range entries {
		r.Bytes += int64(e.Size)
	}
	read := r.look(src)
	rand.Shuffle(len(entries), func(i, k int) { entries[i], entries[k] = entries[k], entries[i] })
	each := (o.Time - time.Since(began)) / 2
	var next atomic.Int64
	for _, n := range []int{1, manyReaders} {
		o.Progress(fmt.Sprintf("reading files, %d at once", n))
		got, why := readFiles(ctx, read, entries, &next, n, each)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if got.Files == 0 && got.Failed > 0 {
			return nil, fmt.Errorf("none of the files in %s that were tried could be read: %w", src, why)
		}
		r.Readers = append(r.Readers, got)
	}
	return r, nil
}

// readOne reads a sample. buf is memory that it may use, and make larger.
type readOne func(ctx context.Context, e sample.Entry, buf *[]byte) (n int64, err error)

// look finds the file system of the source, and returns how its samples are read.
func (r *Reading) look(src source.Source) readOne {
	if source.IsRemote(r.Source) {
		r.Kind, r.Nature = "HTTP", cachedir.Network
		if strings.HasPrefix(strings.TrimPrefix(r.Source, source.Scheme(r.Source)), "s3://") {
			r.Kind = "S3"
		}
		return func(ctx context.Context, e sample.Entry, buf *[]byte) (int64, error) {
			*buf = slices.Grow((*buf)[:0], int(e.Size))
			return int64(e.Size), src.Read(ctx, e, (*buf)[:e.Size])
		}
	}
	folder := r.Source
	if source.Scheme(folder) != "" {
		folder, _ = source.ShardFolder(folder)
	}
	r.Kind, r.Nature, _ = cachedir.FileSystem(folder)
	sharded, _ := src.(source.Sharded)
	return func(ctx context.Context, e sample.Entry, buf *[]byte) (int64, error) {
		if sharded != nil && e.Shard != nil && sharded.Streamed(*e.Shard) { // a streamed shard can't be read cold, and the page cache does not make it faster
			*buf = slices.Grow((*buf)[:0], int(e.Size))
			return int64(e.Size), src.Read(ctx, e, (*buf)[:e.Size])
		}
		return readCold(folder, e, *buf)
	}
}

// list lists the source, in at most half of the time.
func list(ctx context.Context, src source.Source, o ReadOptions) (entries []sample.Entry, err error) {
	o.Progress("listing " + src.String())
	limited, cancel := context.WithTimeout(ctx, o.Time/2)
	defer cancel()
	_, entries, err = src.List(limited, nil)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s has too many files to list in %v: give one of its folders", src, o.Time/2)
	}
	return entries, err
}

// readFiles lets some readers read whole files for a time. Each takes the next file of all. why is the error of one that could not be read.
func readFiles(ctx context.Context, read readOne, entries []sample.Entry, next *atomic.Int64, readers int, length time.Duration) (r Reader, why error) {
	var files, bytes, failed atomic.Int64
	var mu sync.Mutex // guards why
	disk := diskBytes()
	limited, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			buf := make([]byte, 1<<20)
			for limited.Err() == nil {
				e := entries[int(next.Add(1)-1)%len(entries)]
				n, err := read(limited, e, &buf)
				switch {
				case limited.Err() != nil: // it was too late
				case err != nil:
					failed.Add(1)
					mu.Lock()
					why = err
					mu.Unlock()
				default:
					files.Add(1)
					bytes.Add(n)
				}
			}
		})
	}
	all.Wait()
	return Reader{Readers: readers, Files: files.Load(), Bytes: bytes.Load(), Seconds: length.Seconds(), Failed: failed.Load(), Disk: diskBytes() - disk}, why
}

// readCold asks the kernel to drop a sample from the page cache, and reads it: a file, or its parts in a shard.
func readCold(root string, e sample.Entry, buf []byte) (n int64, err error) {
	if e.Shard == nil {
		return readPiece(filepath.Join(root, e.Name), 0, 0, buf)
	}
	for i, off := range e.Offsets {
		if e.Parts[i].Size == 0 {
			continue
		}
		k, err := readPiece(filepath.Join(root, e.Shard.Name), int64(off), int64(e.Parts[i].Size), buf)
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// readPiece reads size bytes of a file from off on; 0: to its end.
func readPiece(path string, off, size int64, buf []byte) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_ = unix.Fadvise(int(f.Fd()), off, size, unix.FADV_DONTNEED) // advice: diskBytes shows whether it was taken
	if size == 0 {
		size = math.MaxInt64
	}
	piece := io.NewSectionReader(f, off, size)
	for {
		k, err := piece.Read(buf)
		n += int64(k)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// diskBytes returns the bytes that were read from block devices for this process.
func diskBytes() int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	var n int64
	for line := range strings.Lines(string(b)) {
		if scan(line, "read_bytes: %d", &n) {
			break
		}
	}
	return n
}
