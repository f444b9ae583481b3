package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
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
	IO       IO
	Jobs     int
	Logger   *slog.Logger
	Progress func(Progress)
}

// VerifyReport counts samples.
type VerifyReport struct {
	Samples   int      `json:"samples"`
	InLog     int      `json:"in_log"`
	Good      int      `json:"good"`
	Corrupt   int      `json:"corrupt"`   // in the log, with bytes that don't have the manifest's sum
	Unknown   int      `json:"unknown"`   // in the log, but their sum is not known: never delivered from there
	Missing   int      `json:"missing"`   // not in the log: read from the source when asked for
	Different int      `json:"different"` // good, but the source has other bytes now
	Bytes     int64    `json:"bytes"`
	Seconds   float64  `json:"seconds"`
	Bad       []string `json:"bad"` // the first names of corrupt and different samples
}

// Verify reads every sample of a cache that is not being served and checks its sum; with Against, every byte. The sum of a sample that is damaged is
// forgotten: it is not looked for in the log again, and the next ingest, or the next epoch, reads it from the source. Nothing on disk
// tells a block that was torn when the machine lost power from one that has rotted since: both count as corrupt.
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
	c, err := openCore(o.Dirs, o.IO, 0, layoutLog, o.Logger)
	if err != nil {
		return nil, err
	}
	v := &verify{VerifyOptions: o, core: c, report: &VerifyReport{Samples: c.manifest.Len()}}
	err = v.run(ctx)
	if closeErr := c.close(); err == nil {
		err = closeErr
	}
	return v.report, err
}

type verify struct {
	VerifyOptions
	*core
	against source.Source
	report  *VerifyReport
	mu      sync.Mutex // guards report
}

func (v *verify) run(ctx context.Context) error {
	start := time.Now()
	if v.Against != "" {
		var err error
		if v.against, err = source.Open(v.Against, v.core.job.sourceOptions()); err != nil {
			return err
		}
		defer v.against.Close()
		v.against = &watched{Source: v.against, record: filepath.Join(v.core.dirs[0], listingName)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range v.Jobs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var mem, plain, unpacked []byte
			defer func() {
				if mem != nil {
					blockio.Free(mem)
				}
			}()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= v.core.manifest.Len() {
					return
				}
				size := int(v.core.manifest.Size(sample.Index(i)))
				if need := logfile.Span(4095, size); len(mem) < need {
					if mem != nil {
						blockio.Free(mem)
					}
					var err error
					if mem, err = blockio.Alloc(need); err != nil {
						cancel(err)
						return
					}
				}
				if len(plain) < size {
					plain = make([]byte, size)
				}
				if v.form != nil && len(unpacked) < size {
					unpacked = make([]byte, size)
				}
				if err := v.one(ctx, sample.Index(i), mem, plain[:size], unpacked[:min(size, len(unpacked))]); err != nil {
					cancel(err)
					return
				}
				v.Progress(Progress{Stage: "verifying", Done: int64(i + 1), Total: int64(v.core.manifest.Len()), Unit: "samples"})
			}
		}()
	}
	wg.Wait()
	v.report.Seconds = time.Since(start).Seconds()
	return context.Cause(ctx)
}

func (v *verify) one(ctx context.Context, index sample.Index, mem, plain, unpacked []byte) error {
	c := v.core
	size := c.manifest.Size(index)
	slot, seg, off, ok := c.loc.Split(c.loc.Get(index))
	sum, known := c.sums.Get(index)
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
	var data []byte
	good, came := false, false
	for range 2 { // one wrong read is no damage yet
		stored, err := c.logfile(slot).Read(ctx, seg, off, c.storedSize(index), mem)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		came = came || err == nil
		if data = stored; err == nil && c.form != nil {
			data, err = unpacked, c.form.Unpack(index, stored, unpacked)
		}
		if good = err == nil && sample.Sum(data) == sum; good {
			break
		}
	}
	name, err := c.manifest.Name(index)
	if err != nil {
		return err
	}
	if !good {
		if came { // a disk that can't be read now may be, later
			c.sums.Forget(index)
		}
		v.count(func(r *VerifyReport) { r.InLog++; r.Corrupt++; r.bad(name) })
		return nil
	}
	different := false
	if v.against != nil {
		entry, err := c.manifest.Entry(index)
		if err != nil {
			return err
		}
		if err := v.against.Read(ctx, entry, plain); err != nil {
			var se *source.SampleError
			if !errors.As(err, &se) {
				return fmt.Errorf("compare %q: %w", name, err)
			}
			different = true
		} else {
			different = !bytes.Equal(data, plain)
		}
	}
	v.count(func(r *VerifyReport) {
		r.InLog++
		r.Good++
		r.Bytes += int64(size)
		if different {
			r.Different++
			r.bad(name)
		}
	})
	return nil
}

func (v *verify) count(f func(*VerifyReport)) {
	v.mu.Lock()
	f(v.report)
	v.mu.Unlock()
}

func (r *VerifyReport) bad(name string) {
	if len(r.Bad) < 20 {
		r.Bad = append(r.Bad, name)
	}
}
