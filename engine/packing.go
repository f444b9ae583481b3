package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"lcache/blockio"
	"lcache/logfile"
	"lcache/sample"
	"lcache/stored"
	"lcache/usage"
)

// Packing is the part of job.json about compression. It is fixed when the cache is made.
type Packing struct {
	Compress string   `json:"compress,omitempty"`     // "lz4"; "": none
	Saves    *float64 `json:"saves,omitempty"`        // what a part of the data said; nil: it was not asked
	Stored   uint64   `json:"stored_bytes,omitempty"` // estimate of what all samples take in the log, padded
	Room     uint64   `json:"room,omitempty"`         // what they may take of it: what exceeds is refused
}

func (p Packing) packed() bool { return p.Compress != "" }

func (p Packing) compress() string {
	if p.packed() {
		return p.Compress
	}
	return "none"
}

const (
	lz4Name     = "lz4"
	lengthBytes = 8 // of an entry of the stored lengths

	leastSaving  = 0.1 // auto: what is saved less often costs more time than it gives
	trialSamples = 1000
	trialBytes   = 64 << 20
)

func checkCompress(c string) error {
	switch c {
	case "", "auto", lz4Name, "none":
		return nil
	}
	return usage.Errorf("compression %q is not known: auto, lz4 or none", c)
}

// keepsPacking reports whether a cache is as this ingest wants it. What auto has found once stays.
func (in *ingest) keepsPacking(p Packing) bool {
	return in.Compress == "" || in.Compress == "auto" || in.Compress == p.compress()
}

// choosePacking tries how much lz4 saves on a part of the data, if it may be used at all, and decides.
func (in *ingest) choosePacking(ctx context.Context) error {
	c := in.core
	c.job.Packing = Packing{}
	want := in.Compress
	if want == "" && in.old != nil { // made anew for another reason
		want = in.old.compress()
	}
	if want == "" || want == "none" {
		return nil
	}
	t, err := in.try(ctx)
	if err != nil {
		return err
	}
	saves := t.Saves()
	c.job.Saves = &saves
	if want == "auto" && saves < leastSaving {
		return nil
	}
	c.job.Stored = t.Stored(c.facts().Kept, c.manifest.Len())
	c.job.Compress = lz4Name
	return nil
}

// drawn are the samples that are tried: one at random out of each of as many runs of equal length, so that neither a dataset that is sorted
// nor one with a period deceives.
func drawn(sizes []uint32, share, shares int) (list []sample.Index) {
	mine := (len(sizes) - share + shares - 1) / shares
	r := rand.New(rand.NewPCG(1, uint64(mine)))
	for n := min(trialSamples, mine); ; n /= 2 {
		list = list[:0]
		bytes := 0
		for k := range n {
			from, to := k*mine/n, (k+1)*mine/n
			index := sample.Index(share + (from+r.IntN(to-from))*shares)
			list = append(list, index)
			bytes += int(sizes[index])
		}
		if bytes <= trialBytes || n <= 2 {
			return list
		}
	}
}

// try reads some samples and packs them.
func (in *ingest) try(ctx context.Context) (*stored.Trial, error) {
	c := in.core
	t := &stored.Trial{Align: c.format.Align}
	list := drawn(c.manifest.Sizes(), in.Share, in.Shares)
	buffers := make(chan []byte) // in any order: a Trial does not mind
	next := make(chan sample.Index)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers sync.WaitGroup
	for range min(in.Jobs, len(list)) {
		readers.Go(func() {
			for index := range next {
				entry, err := c.manifest.Entry(index)
				buf := make([]byte, c.manifest.Size(index))
				if err == nil {
					err = c.source.Read(ctx, entry, buf)
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
		in.Progress(Progress{Stage: "trying lz4", Done: done, Total: int64(len(list)), Unit: "samples"})
	}
	return t, context.Cause(ctx)
}

// openLengths opens the stored lengths of a cache that compresses, and gives what every sample takes in the log. Without the
// file the log can't be read: it was removed, or the cache's making did not come that far.
func (c *core) openLengths() ([]uint32, error) {
	if !c.job.packed() {
		return c.manifest.Sizes(), nil
	}
	if c.job.Compress != lz4Name {
		return nil, fmt.Errorf("%s is compressed with %q, this lcache knows lz4: use the lcache that made the cache, or ingest again", c.dirs[0], c.job.Compress)
	}
	path := filepath.Join(c.dirs[0], lengthsName)
	if c.readOnly {
		return c.readLengths(path)
	}
	var err error
	c.lengths, err = sample.OpenLengths(path, c.manifest.Fingerprint(), c.manifest.Sizes())
	if errors.Is(err, sample.ErrCorrupt) || errors.Is(err, sample.ErrOtherManifest) {
		c.logger.Warn("the stored lengths are damaged; what the log holds is read from the source again", "error", err)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		c.lengths, err = sample.OpenLengths(path, c.manifest.Fingerprint(), c.manifest.Sizes())
	}
	if err != nil {
		return nil, err
	}
	return c.lengths.All(), nil
}

func (c *core) closeLengths() error {
	l := c.lengths
	if c.lengths = nil; l == nil {
		return nil
	}
	return l.Close()
}

func (c *core) syncLengths() error {
	if c.lengths == nil {
		return nil
	}
	return c.lengths.Sync()
}

// storedSize is how many bytes a sample that is in the log takes there.
func (c *core) storedSize(index sample.Index) int {
	if c.form != nil {
		return c.form.Length(index)
	}
	return int(c.manifest.Size(index))
}

// refuses reports whether the log has no room for a sample, because the data compresses less than the part that was tried.
func (c *core) refuses(index sample.Index) bool { return c.form != nil && c.form.Refuses(index) }

// appendTo stores a sample's plain bytes in a Logfile, packed if the cache compresses.
func (c *core) appendTo(ctx context.Context, l *logfile.Logfile, seg int, index sample.Index, plain []byte) (off uint64, err error) {
	if c.form == nil {
		return l.Append(ctx, seg, index, plain)
	}
	err = c.form.Pack(ctx, index, plain, func(data []byte) (err error) {
		off, err = l.Append(ctx, seg, index, data)
		return err
	})
	return off, err
}

// append stores a sample's bytes in the Logfile that is being filled.
func (in *ingest) append(ctx context.Context, seg int, index sample.Index, plain []byte) (uint64, error) {
	c := in.core
	off, err := c.appendTo(ctx, in.target, seg, index, plain)
	if errors.Is(err, stored.ErrLength) && !in.inLog(index) {
		c.form.Forget(index) // its bytes are others now
		return c.appendTo(ctx, in.target, seg, index, plain)
	}
	return off, err
}

// inLog reports whether a Logfile counts with a sample's stored length. That is rarely asked, and takes a while.
func (in *ingest) inLog(index sample.Index) (held bool) {
	for _, l := range in.core.store.Logfiles() {
		held = held || l != nil && l.Counts(index)
	}
	return held
}

func (in *ingest) reportPacking() {
	c, r := in.core, in.report
	r.Compress, r.Saves = c.job.compress(), c.job.Saves
	if c.form == nil || r.StoredSamples == 0 {
		return
	}
	var plain int64
	for i := range c.manifest.Len() {
		if c.loc.Get(sample.Index(i)) != 0 {
			plain += int64(c.manifest.Size(sample.Index(i)))
		}
	}
	saves := 1 - float64(r.StoredBytes)/float64(plain)
	r.Saves = &saves
}

// makeScratch takes the memory that the pass reads compressed blocks to.
func (e *Engine) makeScratch() (err error) {
	if e.form == nil {
		return nil
	}
	if e.scratch, err = blockio.Alloc(int(e.sizing.Scratch)); err != nil {
		return err
	}
	if err := e.io.Register(e.scratch); err != nil {
		e.freeScratch()
		return fmt.Errorf("register scratch memory: %w", err)
	}
	return nil
}

func (e *Engine) freeScratch() {
	if e.scratch != nil {
		blockio.Free(e.scratch)
		e.scratch = nil
	}
}
