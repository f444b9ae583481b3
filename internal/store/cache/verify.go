package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/host"
	"lcache/logfile"
	"lcache/sample"
	"lcache/source"
)

// VerifyOptions of Verify.
type VerifyOptions struct {
	Dirs     []string
	Against  string        // a source, to compare every byte with; "": checksums only
	Remote   source.Remote // for Against: settings given now override the stored ones
	Repair   bool          // drop the checksums of damaged samples, so that they are read from the source again
	IO       IO
	Jobs     int
	Logger   *slog.Logger
	Progress func(Progress)
}

// VerifyReport counts samples. Each is one of Good, Corrupt, Unreadable, Unknown and Missing.
type VerifyReport struct {
	Samples    int      `json:"samples"`
	InLog      int      `json:"in_log"`
	Good       int      `json:"good"`
	Corrupt    int      `json:"corrupt"`    // in the log, with bytes that don't have the known checksum
	Unreadable int      `json:"unreadable"` // in the log, but could not be read: their bytes are unknown
	Unknown    int      `json:"unknown"`    // in the log, without a known checksum: never delivered from there
	Missing    int      `json:"missing"`    // not in the log: read from the source when requested
	Different  int      `json:"different"`  // good, but the source has other bytes now
	Uncompared int      `json:"uncompared"` // good, but the source could not be read
	Forgotten  int      `json:"forgotten"`  // corrupt samples whose checksum was dropped, because of Repair
	Bytes      int64    `json:"bytes"`
	Seconds    float64  `json:"seconds"`
	Bad        []string `json:"bad"`    // the first names of corrupt and different samples
	Errors     []string `json:"errors"` // name and cause of the first unreadable and uncompared ones
}

// Verify reads every sample of a cache and checks its checksum; with Against, it compares every byte. The cache must not be served meanwhile. Verify
// changes no file of the cache, unless Repair is set: then, at the end, it forgets the checksums of damaged samples. Such a sample is not read from
// the log again; the next ingest, or the next epoch, reads it from the source. A block that was torn by a power cut and a block that has rotted look
// the same on disk: both count as corrupt.
//
// An error without a report means that Verify did not finish, and dropped no checksum.
func Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Jobs <= 0 {
		o.Jobs = 4 * host.Cores
	}
	c := &Cache{Logger: o.Logger, readOnly: !o.Repair, asideErrors: verifyErrors}
	if err := c.open(Options{Dirs: o.Dirs, IO: o.IO, Layout: LayoutLog}); err != nil {
		return nil, err
	}
	v := &verify{o: o, cache: c, report: &VerifyReport{Samples: c.Manifest.Len()}}
	v.bad.lines, v.failed.lines = []string{}, []string{}
	if err := v.run(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	v.forget()
	err := c.Close()
	if err != nil && !o.Repair { // nothing was written, so nothing is lost: the report has a device that does not answer
		o.Logger.Warn("the cache was not closed cleanly", "error", err)
		err = nil
	}
	return v.report, err
}

// OpenReadOnly opens a cache for inspection. It changes no file, except the lock files.
func OpenReadOnly(dirs []string, logger *slog.Logger) (*Cache, error) {
	c := &Cache{Logger: logger, readOnly: true}
	if err := c.open(Options{Dirs: dirs, Layout: LayoutLog}); err != nil {
		return nil, err
	}
	return c, nil
}

// verifyErrors is the number of errors within a minute that quarantines a device. It is large, so that a device with a few bad sectors is read to its end.
const verifyErrors = 1 << 16

type verify struct {
	o       VerifyOptions
	cache   *Cache
	against source.Source
	mu      sync.Mutex // guards the fields that follow
	report  *VerifyReport
	corrupt []sample.Index
	bad     firstLines // of corrupt and different samples
	failed  firstLines // of samples that could not be read
}

func (v *verify) run(ctx context.Context) error {
	start, jobs := time.Now(), v.o.Jobs
	if v.o.Against != "" {
		var err error
		o := v.cache.Record.SourceOptions()
		o.Remote = v.o.Remote.Or(o.Remote)
		if v.against, err = source.Open(v.o.Against, o); err != nil {
			return err
		}
		defer v.against.Close()
		if s, ok := v.against.(source.Sharded); ok && slices.ContainsFunc(v.cache.Manifest.Shards(), s.Streamed) {
			jobs = 1 // one reader, once: the source can only be read sequentially
		}
		if v.o.Repair {
			v.against = &watched{Source: v.against, record: filepath.Join(v.cache.Dirs[0], ListingName)}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			r := verifier{verify: v}
			defer r.free()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= v.cache.Manifest.Len() {
					return
				}
				if err := r.one(ctx, sample.Index(i)); err != nil {
					cancel(err)
					return
				}
				v.o.Progress(Progress{Stage: "verifying", Done: int64(i + 1), Total: int64(v.cache.Manifest.Len()), Unit: "samples"})
			}
		})
	}
	wg.Wait()
	v.report.Seconds, v.report.Bad, v.report.Errors = time.Since(start).Seconds(), v.bad.lines, v.failed.lines
	if err := v.cache.Sums.Broken(); err != nil {
		v.cache.Logger.Warn("some checksums can't be read", "error", err)
	}
	return context.Cause(ctx)
}

// forget drops the checksums of damaged samples, with Repair.
func (v *verify) forget() {
	if !v.o.Repair {
		return
	}
	for _, index := range v.corrupt {
		v.cache.Sums.Forget(index)
	}
	v.report.Forgotten = len(v.corrupt)
}

// verifier is one goroutine of Verify, with its memory.
type verifier struct {
	*verify
	mem             []byte // for reads of the log, aligned; nil: none is allocated, or a device still writes to the last one
	plain, unpacked []byte
}

func (v *verifier) free() {
	if v.mem != nil {
		blockio.Free(v.mem)
		v.mem = nil
	}
}

// one checks a sample. Its error ends the whole run.
func (v *verifier) one(ctx context.Context, index sample.Index) error {
	c := v.cache
	size := c.Manifest.Size(index)
	num, seg, off, ok := c.Locations.Split(c.Locations.Get(index))
	sum, known := c.Sums.Get(index)
	if size == 0 {
		v.count(func(r *VerifyReport) { r.Good++ })
		return nil
	}
	if !ok {
		v.count(func(r *VerifyReport) { r.Missing++ })
		return nil
	}
	if !known {
		v.count(func(r *VerifyReport) { r.InLog++; r.Unknown++ })
		return nil
	}
	name, err := c.Manifest.Name(index)
	if err != nil {
		return err
	}
	var data []byte
	good := false
	for range 2 { // a single wrong read is not damage yet
		if data, err = v.read(ctx, c.Logfile(num), seg, off, index); ctx.Err() != nil {
			return ctx.Err()
		}
		if good = err == nil && sample.Sum(data) == sum; good || errors.Is(err, logfile.ErrQuarantined) {
			break
		}
	}
	switch {
	case err != nil && !errors.Is(err, errUnpack):
		v.count(func(r *VerifyReport) { r.InLog++; r.Unreadable++; v.failed.add(index, failure(name, err)) })
		return nil
	case !good:
		v.count(func(r *VerifyReport) {
			r.InLog++
			r.Corrupt++
			v.bad.add(index, name)
			v.corrupt = append(v.corrupt, index)
		})
		return nil
	}
	different, err := v.compare(ctx, index, data)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v.count(func(r *VerifyReport) {
		r.InLog++
		r.Good++
		r.Bytes += int64(size)
		switch {
		case err != nil:
			r.Uncompared++
			v.failed.add(index, failure(name, err))
		case different:
			r.Different++
			v.bad.add(index, name)
		}
	})
	return nil
}

// errUnpack means that bytes were read from the log, but are not a compressed sample.
var errUnpack = errors.New("the stored bytes can't be unpacked")

// read returns a sample's plain bytes from the log. They are valid until the next call.
func (v *verifier) read(ctx context.Context, l *logfile.Logfile, seg int, off uint64, index sample.Index) ([]byte, error) {
	c := v.cache
	n := c.StoredSize(index)
	if need := logfile.Span(off, n); len(v.mem) < need {
		v.free()
		var err error
		if v.mem, err = blockio.Alloc(need); err != nil {
			return nil, err
		}
	}
	stored, err := l.Read(ctx, seg, off, n, v.mem)
	if pending := new(logfile.PendingError); errors.As(err, &pending) {
		FreeAfter(pending, v.mem)
		v.mem = nil
	}
	if err != nil || c.Form == nil || !c.Form.Packed(index) {
		return stored, err
	}
	v.unpacked = sized(v.unpacked, int(c.Manifest.Size(index)))
	if err := c.Form.Unpack(index, stored, v.unpacked); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnpack, err)
	}
	return v.unpacked, nil
}

// FreeAfter unmaps the buffer of an abandoned read once the device has finished it. If the device never answers, the buffer stays mapped until the
// process ends.
func FreeAfter(pending *logfile.PendingError, mem []byte) {
	go func() {
		<-pending.Done
		blockio.Free(mem)
	}()
}

// compare reports whether the source has other bytes. Without a source to compare with it returns false. A sample that the source has removed or
// changed is different; a sample that can't be read is an error.
func (v *verifier) compare(ctx context.Context, index sample.Index, data []byte) (different bool, err error) {
	if v.against == nil {
		return false, nil
	}
	entry, err := v.cache.Manifest.Entry(index)
	if err != nil {
		return false, err
	}
	v.plain = sized(v.plain, len(data))
	err = v.against.Read(ctx, entry, v.plain)
	if errors.Is(err, source.ErrChanged) || errors.Is(err, source.ErrGone) {
		return true, nil
	}
	return err == nil && !bytes.Equal(data, v.plain), err
}

// sized returns n bytes: of mem if it is large enough, else of new memory.
func sized(mem []byte, n int) []byte {
	if cap(mem) < n {
		return make([]byte, n)
	}
	return mem[:n]
}

// count changes the report under its lock.
func (v *verify) count(f func(*VerifyReport)) {
	v.mu.Lock()
	f(v.report)
	v.mu.Unlock()
}

// mostNamed is the number of samples of each kind that a report names.
const mostNamed = 20

// firstLines has a line for each of the first samples of a kind, by index: the same in every run.
type firstLines struct {
	indices []sample.Index
	lines   []string
}

// add adds a sample's line, if the sample is among the first.
func (t *firstLines) add(index sample.Index, line string) {
	at, _ := slices.BinarySearch(t.indices, index)
	if at == mostNamed {
		return
	}
	t.indices = slices.Insert(t.indices, at, index)
	t.lines = slices.Insert(t.lines, at, line)
	if len(t.lines) > mostNamed {
		t.indices, t.lines = t.indices[:mostNamed], t.lines[:mostNamed]
	}
}

func failure(name string, err error) string { return fmt.Sprintf("%s: %v", name, err) }
