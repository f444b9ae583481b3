package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
)

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
