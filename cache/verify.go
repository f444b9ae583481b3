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

	"lcache/blockio"
	"lcache/cores"
	"lcache/logfile"
	"lcache/sample"
	"lcache/source"
)

// VerifyOptions of Verify.
type VerifyOptions struct {
	Dirs     []string
	Against  string // a source, to compare every byte with; "": sums only
	Repair   bool   // forget the sums of what is damaged, so that it is read again
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
	Corrupt    int      `json:"corrupt"`    // in the log, with bytes that don't have the manifest's sum
	Unreadable int      `json:"unreadable"` // in the log, but no bytes came: nothing is known of them
	Unknown    int      `json:"unknown"`    // in the log, but their sum is not known: never delivered from there
	Missing    int      `json:"missing"`    // not in the log: read from the source when asked for
	Different  int      `json:"different"`  // good, but the source has other bytes now
	Uncompared int      `json:"uncompared"` // good, but the source could not be read
	Forgotten  int      `json:"forgotten"`  // corrupt ones whose sum is no longer known, because of Repair
	Bytes      int64    `json:"bytes"`
	Seconds    float64  `json:"seconds"`
	Bad        []string `json:"bad"`    // the first names of corrupt and different samples
	Errors     []string `json:"errors"` // what was wrong with the first unreadable and uncompared ones: name and cause
}

// Verify reads every sample of a cache that is not being served and checks its sum; with Against, every byte. No file of the cache is changed,
// unless Repair is set: then, at the end, the sums of samples that are damaged are forgotten. Such a sample is not looked for in the log
// again, and the next ingest, or the next epoch, reads it from the source. Nothing on disk tells a block that was torn when the machine lost
// power from one that has rotted since: both count as corrupt.
//
// An error without a report says that not all was looked at, and nothing was forgotten.
func Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Jobs <= 0 {
		o.Jobs = 4 * cores.N
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
	if err != nil && !o.Repair { // nothing was written, so nothing is lost: a device that does not answer is in the report
		o.Logger.Warn("the cache was not closed cleanly", "error", err)
		err = nil
	}
	return v.report, err
}

// verifyErrors put a device aside, so many within a minute: one with a few bad sectors is read to its end.
const verifyErrors = 1 << 16

type verify struct {
	o       VerifyOptions
	cache   *Cache
	against source.Source
	mu      sync.Mutex // guards the fields that follow
	report  *VerifyReport
	corrupt []sample.Index
	bad     told // of the corrupt and different ones
	failed  told // of those that could not be read
}

func (v *verify) run(ctx context.Context) error {
	start := time.Now()
	if v.o.Against != "" {
		var err error
		if v.against, err = source.Open(v.o.Against, v.cache.Record.SourceOptions()); err != nil {
			return err
		}
		defer v.against.Close()
		if v.o.Repair {
			v.against = &watched{Source: v.against, record: filepath.Join(v.cache.Dirs[0], ListingName)}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range v.o.Jobs {
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

// forget makes what is damaged unknown, with Repair.
func (v *verify) forget() {
	if !v.o.Repair {
		return
	}
	for _, index := range v.corrupt {
		v.cache.Sums.Forget(index)
	}
	v.report.Forgotten = len(v.corrupt)
}

// verifier is one goroutine's memory.
type verifier struct {
	*verify
	mem             []byte // for reads of the log, aligned; nil: there is none, or the last one is the device's still
	plain, unpacked []byte
}

func (v *verifier) free() {
	if v.mem != nil {
		blockio.Free(v.mem)
		v.mem = nil
	}
}

// one looks at a sample. The error is one of the whole run.
func (v *verifier) one(ctx context.Context, index sample.Index) error {
	c := v.cache
	size := c.Manifest.Size(index)
	slot, seg, off, ok := c.Locations.Split(c.Locations.Get(index))
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
	for range 2 { // one wrong read is no damage yet
		if data, err = v.read(ctx, c.Logfile(slot), seg, off, index); ctx.Err() != nil {
			return ctx.Err()
		}
		if good = err == nil && sample.Sum(data) == sum; good || errors.Is(err, logfile.ErrAside) {
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

// errUnpack says that the log's bytes came, and are no packed sample.
var errUnpack = errors.New("what is stored can't be unpacked")

// read gives a sample's plain bytes as the log has them; they are valid until the next call.
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
	if err != nil || c.Form == nil {
		return stored, err
	}
	v.unpacked = sized(v.unpacked, int(c.Manifest.Size(index)))
	if err := c.Form.Unpack(index, stored, v.unpacked); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnpack, err)
	}
	return v.unpacked, nil
}

// FreeAfter unmaps the buffer of a read that nobody waits for, once the device is done with it. One that never answers keeps it until the
// process ends.
func FreeAfter(pending *logfile.PendingError, mem []byte) {
	go func() {
		<-pending.Done
		blockio.Free(mem)
	}()
}

// compare reports whether the source has other bytes, if there is one to compare with. What it has no longer, or has changed, is different;
// what it can't be read is an error.
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

// sized gives n bytes, in the same memory if it has them.
func sized(mem []byte, n int) []byte {
	if cap(mem) < n {
		return make([]byte, n)
	}
	return mem[:n]
}

func (v *verify) count(f func(*VerifyReport)) {
	v.mu.Lock()
	f(v.report)
	v.mu.Unlock()
}

// mostTold is how many samples a report names of each kind.
const mostTold = 20

// told is what is said of the first samples of a kind, in the order of their indices: the same in every run.
type told struct {
	indices []sample.Index
	lines   []string
}

func (t *told) add(index sample.Index, line string) {
	at, _ := slices.BinarySearch(t.indices, index)
	if at == mostTold {
		return
	}
	t.indices = slices.Insert(t.indices, at, index)
	t.lines = slices.Insert(t.lines, at, line)
	if len(t.lines) > mostTold {
		t.indices, t.lines = t.indices[:mostTold], t.lines[:mostTold]
	}
}

func failure(name string, err error) string { return fmt.Sprintf("%s: %v", name, err) }
