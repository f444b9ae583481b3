package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"lcache/internal/disk/durable"
	"lcache/internal/errcode"
	"lcache/sample"
	"lcache/source"
)

// Two files with the same size and time may have other bytes, and only the inode distinguishes them. So a cache of a directory stores the
// file that each sample's bytes were read from: see sample.Inodes. Ingest makes the file of inodes and compares it with a listing. A server
// learns inodes from its reads. Problems with the file are not errors: the inodes are then unknown, and are learnt again.

// OpenInodes opens the inodes, if the source has any. With create, a missing or unusable file is made again if there is room, and the
// record of the last listing is removed, so that the next listing checks every file; made is then true. Without inodes c.Inodes stays nil.
func (c *Cache) OpenInodes(create bool) (made bool) {
	if c.readOnly || !source.NumbersFiles(c.Lister) {
		return false
	}
	path, n := filepath.Join(c.Dirs[0], InodesName), c.Manifest.Len()
	if _, there := os.Lstat(path); there == nil {
		var err error
		if c.Inodes, err = sample.OpenInodes(path, c.Manifest.Fingerprint(), n); err == nil {
			return false
		}
		c.Logger.Info("inodes of the samples are unknown; they are learnt again", "error", err)
	}
	if !create {
		return false
	}
	err := remove(path)
	if err == nil {
		err = c.checkInodesRoom()
	}
	if err == nil {
		err = remove(filepath.Join(c.Dirs[0], ListingName))
	}
	if err == nil {
		c.Inodes, err = sample.OpenInodes(path, c.Manifest.Fingerprint(), n)
	}
	if err != nil {
		c.Logger.Info("files replaced by others of the same size and time will not be detected", "reason", err)
	}
	return err == nil
}

// remove removes a file, if there is one.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// checkInodesRoom returns an error if the budget or the disk has no room for the file of inodes. The budgets of caches from before this
// file existed do not include it.
func (c *Cache) checkInodesRoom() error {
	need := int64(sample.InodesBytes(c.Manifest.Len()))
	free, err := c.FreeBytes()
	switch {
	case err != nil:
		return err
	case free < need:
		return errcode.Errorf(errcode.NoSpace, "%s has no room for %s, which needs %d bytes: make room, and run lcache ingest again", c.Dirs[0], InodesName, need)
	case c.Record.Budget > 0 && c.StateRoom()-c.statesBytes() < need:
		return errcode.Errorf(errcode.BudgetTooSmall, "the budget has no room for %s, which needs %d bytes: make the cache again, with a larger --budget", InodesName, need)
	}
	return nil
}

// statesBytes returns the bytes of the files of importance.
func (c *Cache) statesBytes() (n int64) {
	paths, _ := filepath.Glob(filepath.Join(c.Dirs[0], "importance-*"))
	for _, path := range paths {
		if st, err := os.Lstat(path); err == nil {
			n += st.Size()
		}
	}
	return n
}

// inodesBytes returns the bytes of the inodes on disk, in a new cache or in one that has the file.
func (c *Cache) inodesBytes() uint64 {
	if !source.NumbersFiles(c.Lister) {
		return 0
	}
	if _, err := os.Lstat(filepath.Join(c.Dirs[0], InodesName)); err != nil && c.Format.Places > 0 {
		return 0
	}
	return sample.InodesBytes(c.Manifest.Len())
}

// carryInodes copies the inodes of a replaced manifest to this one, with a mapping from sample.Remap.
func (c *Cache) carryInodes(from *sample.Manifest, to []sample.Index) {
	path := filepath.Join(c.Dirs[0], InodesName)
	if _, err := os.Lstat(path); err != nil {
		return
	}
	old, err := sample.OpenInodes(path, from.Fingerprint(), from.Len())
	if err != nil {
		return // copied already, or useless
	}
	next := path + ".next"
	err = remove(next)
	var inodes *sample.Inodes
	if err == nil {
		inodes, err = sample.OpenInodes(next, c.Manifest.Fingerprint(), c.Manifest.Len())
	}
	if err == nil {
		old.CopyTo(inodes, to)
		err = inodes.Close()
	}
	if err = errors.Join(err, old.Close()); err == nil {
		err = durable.Rename(next, path)
	}
	if err != nil {
		c.Logger.Info("inodes of the samples were dropped", "error", err)
	}
}

// learning has inodes from reads until a goroutine has stored them. A page of the file may be on a hung disk, and no read must wait for that.
type learning struct {
	mu     sync.Mutex // guards the fields that follow
	queue  []learnt
	noting bool // a goroutine works on the queue

	goroutine sync.WaitGroup
}

type learnt struct {
	index sample.Index
	inode uint64
	right bool
}

// mostLearnt bounds the queue. Inodes that do not fit are learnt by a later read.
const mostLearnt = 4096

// LearnInode notes the file from which the bytes of a sample were read; sample.NoInode: unknown. right reports whether the bytes have the
// sample's checksum. If not, the next listing checks every file, and reads this one even if size, time and inode are unchanged. LearnInode
// does not wait.
func (c *Cache) LearnInode(index sample.Index, inode uint64, right bool) {
	if c.Inodes == nil || right && inode == sample.NoInode {
		return
	}
	l := &c.learning
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) < mostLearnt {
		l.queue = append(l.queue, learnt{index, inode, right})
	}
	if !l.noting {
		l.noting = true
		l.goroutine.Go(c.noteLearnt)
	}
}

// noteLearnt stores the entries of the queue, until it is empty.
func (c *Cache) noteLearnt() {
	l := &c.learning
	for {
		l.mu.Lock()
		some := l.queue
		l.queue = nil
		l.noting = len(some) > 0
		l.mu.Unlock()
		if len(some) == 0 {
			return
		}
		for _, x := range some {
			if x.right {
				c.Inodes.Set(x.index, x.inode)
				continue
			}
			c.Inodes.Suspect(x.index)
			c.suspected.Do(func() { os.Remove(filepath.Join(c.Dirs[0], ListingName)) })
		}
	}
}

// CloseInodes makes the inodes durable and closes them. Close calls it. All reads have ended.
func (c *Cache) CloseInodes() (err error) {
	c.learning.goroutine.Wait()
	if c.Inodes != nil {
		err = c.Inodes.Close()
		c.Inodes = nil
	}
	return err
}
