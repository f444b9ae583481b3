package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"lcache/internal/disk/durable"
	"lcache/sample"
	"lcache/source"
)

// Two files of one size and time may have other bytes, and only the inode tells them apart. So a cache of a directory keeps which file each sample's bytes
// were read from: see sample.Inodes. Ingest makes the file and compares it with a listing; a server learns from what it reads anyway. Whatever is wrong with
// the file is no error: the inodes are not known then, and are learnt again.

// OpenInodes opens the inodes, if the source has some. With create a missing or unusable file is made again, if there is room for it, and the record of the last listing
// is removed, so that the next listing looks at every file; made says so. Without inodes c.Inodes stays nil.
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
		c.Logger.Info("which files the samples were read from is not known: it is learnt again", "error", err)
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
		c.Logger.Info("files that take the place of others of the same size and time are not noticed", "reason", err)
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

// checkInodesRoom refuses a file of inodes for which the budget or the disk has no room. The budget of a cache that was made before there were such files does
// not include one.
func (c *Cache) checkInodesRoom() error {
	need := int64(sample.InodesBytes(c.Manifest.Len()))
	free, err := c.FreeBytes()
	switch {
	case err != nil:
		return err
	case free < need:
		return fmt.Errorf("%s has no room for %s, which needs %d bytes: make room, and run lcache ingest again", c.Dirs[0], InodesName, need)
	case c.Record.Budget > 0 && c.StateRoom()-c.statesBytes() < need:
		return fmt.Errorf("the budget has no room for %s, which needs %d bytes: make the cache again, with a larger --budget", InodesName, need)
	}
	return nil
}

// statesBytes returns how many bytes the files of importance have.
func (c *Cache) statesBytes() (n int64) {
	paths, _ := filepath.Glob(filepath.Join(c.Dirs[0], "importance-*"))
	for _, path := range paths {
		if st, err := os.Lstat(path); err == nil {
			n += st.Size()
		}
	}
	return n
}

// inodesBytes returns how many bytes the inodes take on disk: in a new cache, or in one that has the file.
func (c *Cache) inodesBytes() uint64 {
	if !source.NumbersFiles(c.Lister) {
		return 0
	}
	if _, err := os.Lstat(filepath.Join(c.Dirs[0], InodesName)); err != nil && c.Format.Places > 0 {
		return 0
	}
	return sample.InodesBytes(c.Manifest.Len())
}

// carryInodes carries the inodes of a replaced manifest over to this one, by a mapping from sample.Remap.
func (c *Cache) carryInodes(from *sample.Manifest, to []sample.Index) {
	path := filepath.Join(c.Dirs[0], InodesName)
	if _, err := os.Lstat(path); err != nil {
		return
	}
	old, err := sample.OpenInodes(path, from.Fingerprint(), from.Len())
	if err != nil {
		return // carried already, or of no use
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
		c.Logger.Info("which files the samples were read from is not known any longer", "error", err)
	}
}

// learning has what reads found out about inodes, until a goroutine has noted it. A page of the file may be on a disk that hangs, and no read waits for that.
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

// mostLearnt bounds the queue. What finds no room is learnt by a later read.
const mostLearnt = 4096

// LearnInode notes which file the bytes of a sample were read from; sample.NoInode: that is not known. They have the sample's checksum, or, if right is false, other
// bytes than that: then the next listing looks at every file and reads this one, also if its size, time and inode are those of before. It does not wait.
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

// noteLearnt notes what is in the queue, until it is empty.
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

// CloseInodes makes the inodes durable and closes them. Close calls it. Nothing is read any longer.
func (c *Cache) CloseInodes() (err error) {
	c.learning.goroutine.Wait()
	if c.Inodes != nil {
		err = c.Inodes.Close()
		c.Inodes = nil
	}
	return err
}
