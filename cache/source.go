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

// watched is a source that removes the record of the last listing when a sample has changed. The next listing then looks at every file.
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

// OpenSource opens the source: c.Lister lists it, and c.Source reads its samples, with retries.
func (c *Cache) OpenSource(src string, o source.Options) (err error) {
	if c.Lister, err = source.Open(src, o); err != nil {
		return err
	}
	c.Source = source.NewRetrying(&watched{Source: c.Lister, record: filepath.Join(c.Dirs[0], ListingName)}, source.Retry{})
	return nil
}
