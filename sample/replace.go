package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// replace writes a file as a whole or not at all: fill writes a new file beside path, which is made durable and renamed over path.
// The temporary name is a fixed one, so what a crash leaves is removed by the next try. Two writers of one path at a time are
// not supported; a cache directory has one owner.
func replace(path string, fill func(f *os.File) error) error {
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear an unfinished file: %w", err)
	}
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// openRegular opens a file of the cache: never through a symbolic link, and never something that blocks.
func openRegular(path string, flag int) (*os.File, int64, error) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, 0, errors.New("this machine is big-endian: the cache's columns are used where they lie, and they are little-endian")
	}
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, 0, fmt.Errorf("%w (a symbolic link where a file of the cache should be: remove it)", err)
	}
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}
