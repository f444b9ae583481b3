package ingest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"lcache/chunker"
	"lcache/internal/compress"
	"lcache/internal/store/cache"
	"lcache/internal/usage"
	"lcache/sample"
)

// keepsPacking reports whether a cache has the compression that this ingest requests. With auto, the compression of an existing cache stays.
func (in *run) keepsPacking(p cache.Packing) bool {
	return in.o.Compress == "" || in.o.Compress == "auto" || in.o.Compress == p.CompressName()
}

// choosePacking decides whether a new cache compresses. If lz4 is allowed, it measures the saving on a trial. Huge samples are not in the
// trial, because they are stored uncompressed.
func (in *run) choosePacking(ctx context.Context) error {
	c := in.cache
	c.Record.Packing = cache.Packing{}
	want := in.o.Compress
	if want == "" && in.old != nil { // the cache is made again for another reason
		want = in.old.CompressName()
	}
	if want == "" || want == "none" {
		return nil
	}
	t, err := in.try(ctx)
	if err != nil {
		return err
	}
	all, huge, n := c.Facts().Kept, uint64(0), 0
	most := c.MostPacked()
	for _, size := range c.Manifest.Sizes() {
		if size > most {
			huge += chunker.Padded(size, c.Format.Align)
			n++
		}
	}
	saves := t.Saves() * (1 - float64(huge)/float64(max(all, 1)))
	c.Record.Saves = &saves
	if want == "auto" && saves < leastSaving {
		return nil
	}
	c.Record.Stored = t.Stored(all-huge, c.Manifest.Len()-n) + huge
	c.Record.Compress = cache.LZ4
	return nil
}

// checkCompress returns an error for an unknown compression; "" is that of the existing cache.
func checkCompress(c string) error {
	switch c {
	case "", "auto", cache.LZ4, "none":
		return nil
	}
	return usage.Errorf("compression %q is not known: auto, lz4 or none", c)
}

const (
	leastSaving = 0.1      // for auto: a smaller saving costs more time than it gains
	mostTried   = 1000     // samples in a trial
	trialBytes  = 64 << 20 // bytes in a trial, at most
)

// TrialSamples returns the samples of a trial, from the range [first, behind): one at random from each of several runs of equal length. So
// neither a sorted dataset nor a periodic one misleads the trial.
func TrialSamples(sizes []uint32, first, behind int) (list []sample.Index) {
	mine := behind - first
	r := rand.New(rand.NewPCG(1, uint64(mine)))
	for n := min(mostTried, mine); ; n /= 2 {
		list = list[:0]
		bytes := 0
		for k := range n {
			from, to := k*mine/n, (k+1)*mine/n
			index := sample.Index(first + from + r.IntN(to-from))
			list = append(list, index)
			bytes += int(sizes[index])
		}
		if bytes <= trialBytes || n <= 2 {
			return list
		}
	}
}

// try reads and compresses the samples of a trial.
func (in *run) try(ctx context.Context) (*compress.Trial, error) {
	c := in.cache
	t := &compress.Trial{Align: c.Format.Align}
	first, behind := c.ShareOf(in.o.Share, in.o.Shares)
	sizes := slices.Clone(c.Manifest.Sizes())
	most := c.MostPacked()
	for i, size := range sizes {
		if size > most {
			sizes[i] = 0
		}
	}
	list := TrialSamples(sizes, first, behind)
	list = slices.DeleteFunc(list, func(i sample.Index) bool { return c.Manifest.Size(i) > most })
	buffers := make(chan []byte) // in any order: the result of a Trial does not depend on it
	next := make(chan sample.Index)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers sync.WaitGroup
	jobs := min(in.o.Jobs, len(list))
	if in.streams() > 0 {
		jobs = 1 // the samples come in order, so that no shard is opened twice
	}
	for range jobs {
		readers.Go(func() {
			for index := range next {
				entry, err := c.Manifest.Entry(index)
				buf := make([]byte, c.Manifest.Size(index))
				if err == nil {
					err = c.Source.Read(ctx, entry, buf)
				}
				if err != nil {
					cancel(err)
					return
				}
				buffers <- buf
			}
		})
	}
	go func() {
		defer close(buffers)
		defer readers.Wait()
		defer close(next)
		for _, index := range list {
			select {
			case next <- index:
			case <-ctx.Done():
				return
			}
		}
	}()
	done := int64(0)
	for buf := range buffers {
		t.Add(buf)
		done++
		in.o.Progress(cache.Progress{Stage: "trying lz4", Done: done, Total: int64(len(list)), Unit: "samples"})
	}
	return t, context.Cause(ctx)
}

// append appends a sample's bytes to a segment of the target.
func (in *run) append(ctx context.Context, seg int, index sample.Index, plain []byte) (uint64, error) {
	c := in.cache
	off, err := c.AppendTo(ctx, in.target, seg, index, plain)
	if errors.Is(err, compress.ErrLength) && !in.inLog(index) {
		c.Form.Forget(index) // its bytes have changed
		return c.AppendTo(ctx, in.target, seg, index, plain)
	}
	return off, err
}

// inLog reports whether a Logfile depends on a sample's compressed length. It searches the whole Logfile, and is rarely called.
func (in *run) inLog(index sample.Index) (held bool) {
	for _, l := range in.cache.Store.Logfiles() {
		held = held || l != nil && l.Counts(index)
	}
	return held
}

// reportPacking puts the compression and its saving into the report.
func (in *run) reportPacking() {
	c, r := in.cache, in.report
	r.Compress, r.Saves = c.Record.CompressName(), c.Record.Saves
	if c.Form == nil || r.StoredSamples == 0 {
		return
	}
	var plain int64
	for i := range c.Manifest.Len() {
		if c.Locations.Get(sample.Index(i)) != 0 {
			plain += int64(c.Manifest.Size(sample.Index(i)))
		}
	}
	saves := 1 - float64(r.StoredBytes)/float64(plain)
	r.Saves = &saves
}
