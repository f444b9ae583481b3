package sample

import (
	"encoding/binary"
	"errors"
	"os"

	"lcache/internal/trust"
)

// openRegular opens a file of the cache, and returns its size.
func openRegular(path string, flag int) (*os.File, int64, error) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, 0, errors.New("this machine is big-endian: the cache's columns are used where they lie, and they are little-endian")
	}
	f, err := trust.Open(path, flag)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}
