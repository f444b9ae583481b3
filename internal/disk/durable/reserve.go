package durable

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Reserve makes f at least size bytes long and takes disk space for all of them, so that no later write finds the disk full. Bytes from offset old on, the
// length of f before, become zero. An error wraps that of the system call, such as ENOSPC; f may then be longer than before.
func Reserve(f *os.File, old, size int64) error {
	err := Fallocate(f, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = writeZeros(f, old, size) // such file systems reserve space for bytes that are written
	}
	if err != nil {
		return fmt.Errorf("reserve %d bytes for %s: %w", size, f.Name(), err)
	}
	return nil
}

// Fallocate is fallocate(2) from the start of f, with a mode such as FALLOC_FL_KEEP_SIZE; an interrupted call is repeated.
func Fallocate(f *os.File, mode uint32, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), mode, 0, size)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func writeZeros(f *os.File, from, to int64) error {
	_, err := io.CopyBuffer(io.NewOffsetWriter(f, from), io.LimitReader(zeros{}, to-from), make([]byte, 1<<20))
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
