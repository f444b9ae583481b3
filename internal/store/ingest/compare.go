package ingest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"lcache/internal/store/cache"
	"lcache/sample"
	"lcache/source"
)

// A file of the listing may be another file than the sample's bytes were read from, with the same size and time. Only its inode shows that.
// Each such file is read once, so a source that was restored from a backup costs one read for each file. Ingest compares the file with the
// sample's checksum. If they agree, the inode is learnt; otherwise the sample has changed, and is read as a missing one. Without prefill,
// training begins after the listing, so the checksum is dropped at once. The first read of the sample then learns checksum and inode from
// the file, and the log's copy is valid again if it has the same bytes.

// compareFiles finds the files of the listing that are not the files from which the samples were read, and compares them.
func (in *run) compareFiles(ctx context.Context) error {
	c := in.cache
	listed := in.inodes
	in.inodes = nil
	if made := c.OpenInodes(true); made && in.partly {
		in.folders = nil // the next listing looks at every file, and so learns all inodes
	}
	if c.Inodes == nil {
		return nil
	}
	var others []sample.Index
	for i, inode := range listed {
		index := sample.Index(i)
		_, known := c.Sums.Get(index)
		switch was := c.Inodes.Get(index); {
		case inode == sample.NoInode || inode == was || !known: // without a checksum the file is read later, and its inode learnt then
		case was == sample.NoInode:
			c.Inodes.Set(index, inode)
		default:
			others = append(others, index)
		}
	}
	if len(others) == 0 {
		return nil
	}
	in.report.Replaced = len(others)
	in.logger().Info("files took the place of others of the same size and time: each is read once", "files", len(others))
	if in.o.NoPrefill {
		return in.forget(others)
	}
	changed, failed, err := in.readOthers(ctx, others)
	if err != nil {
		return err
	}
	if failed != nil {
		in.logger().Warn("files that took the place of others of the same size and time can't be compared with these: the samples stay as they are, and the next listing tries again", "error", failed)
		in.folders = nil
		if err := os.Remove(filepath.Join(c.Dirs[0], cache.ListingName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	in.report.Changed = in.report.Changed || len(changed) > 0
	in.report.ChangedSamples += len(changed)
	return in.forget(changed)
}

// forget drops the checksums of samples. That is durable before inodes of other files are learnt for these samples.
func (in *run) forget(list []sample.Index) error {
	if len(list) == 0 {
		return nil
	}
	for _, index := range list {
		in.cache.Sums.Forget(index)
	}
	return in.cache.Sums.Sync()
}

// learn stores the file from which the bytes of a sample were read.
func (in *run) learn(index sample.Index, inode uint64) {
	if c := in.cache; c.Inodes != nil && inode != sample.NoInode {
		c.Inodes.Set(index, inode)
	}
}

// readOthers reads the files of samples, several at once, and learns the inodes of files with the samples' checksums. It returns the other
// samples. failed is the error of an unreadable file, if there is one. err ends the ingest.
func (in *run) readOthers(ctx context.Context, others []sample.Index) (changed []sample.Index, failed, err error) {
	c := in.cache
	var mu sync.Mutex // guards changed and failed
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range min(in.o.Jobs, len(others)) {
		wg.Go(func() {
			names, buf := c.Manifest.Reader(), []byte(nil)
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(others) {
					return
				}
				index, inode := others[i], sample.NoInode
				e, err := names.Entry(index)
				if err == nil {
					buf = slices.Grow(buf[:0], int(e.Size))[:e.Size]
					err = c.Source.Read(source.WithInode(ctx, &inode), e, buf)
				}
				if err == nil && c.Sums.IsRight(index, buf) {
					in.learn(index, inode)
				} else {
					mu.Lock()
					if err == nil {
						changed = append(changed, index)
					} else if failed == nil {
						failed = err
					}
					mu.Unlock()
				}
				in.o.Progress(cache.Progress{Stage: "comparing", Done: done.Add(1), Total: int64(len(others)), Unit: "samples"})
			}
		})
	}
	wg.Wait()
	return changed, failed, context.Cause(ctx)
}
