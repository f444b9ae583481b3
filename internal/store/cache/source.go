package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"lcache/sample"
	"lcache/source"
)

// watched is a source that removes the record of the last listing when a sample has changed. The next listing then checks every file.
type watched struct {
	source.Source
	record string // path of the record of the listing
	once   sync.Once
}

func (w *watched) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	err := w.Source.Read(ctx, e, dst)
	if errors.Is(err, source.ErrChanged) || errors.Is(err, source.ErrGone) {
		w.once.Do(func() { os.Remove(w.record) })
	}
	return err
}

// Requests returns the requests of the wrapped source.
func (w *watched) Requests() (source.Requests, bool) { return source.RequestsOf(w.Source) }

// SourceJobs returns the number of samples that are read from the source at once. A source over a network limits its own requests, and
// needs enough samples to reach that limit.
func (c *Cache) SourceJobs() int {
	const least, most, memory = 16, 256, 256 << 20
	if c.Manifest == nil || c.Manifest.Len() == 0 || !source.IsRemote(c.Record.Source) {
		return least
	}
	mean := max(1, c.Manifest.Bytes()/uint64(c.Manifest.Len()))
	return int(min(max(memory/mean, least), most))
}

// NoteComplete records that all of a remote source is in the log, so that it need not be listed again to be served.
func (c *Cache) NoteComplete() error {
	if c.Record.Complete || !source.IsRemote(c.Record.Source) || c.Record.Listed.IsZero() || !c.IsComplete(0, 1) {
		return nil
	}
	c.Record.Complete = true
	return c.keepRecord()
}

// OpenSource opens the source: c.Lister lists it, and c.Source reads its samples, with retries.
func (c *Cache) OpenSource(src string, o source.Options) (err error) {
	if c.Lister, err = source.Open(src, o); err != nil {
		return err
	}
	c.Source = source.NewRetrying(&watched{Source: c.Lister, record: filepath.Join(c.Dirs[0], ListingName)}, source.Retry{})
	return nil
}
