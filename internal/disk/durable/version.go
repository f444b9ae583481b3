package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// suffix follows the name of a file in the name of its next version.
const suffix = ".new"

// Version is the next version of a file, under a temporary name until Commit. It is not safe for concurrent use.
type Version struct {
	File  *os.File // stays open after Commit; the Trace does not receive direct writes to it
	path  string   // of the file that Commit replaces
	end   int64    // where the next Write goes
	trace Trace
}

// Begin creates an empty next version of the file at path.
func (t Trace) Begin(path string) (*Version, error) {
	temp := path + suffix
	if err := t.Report(Change{Step: StepCreate, Path: temp}); err != nil {
		return nil, fmt.Errorf("create %s: %w", temp, err)
	}
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("clear an unfinished file: %w", err)
	}
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &Version{File: f, path: path, trace: t}, nil
}

// Write writes b after the bytes of earlier Writes.
func (v *Version) Write(b []byte) (int, error) {
	n, err := v.WriteAt(b, v.end)
	v.end += int64(n)
	return n, err
}

// WriteAt writes b at an offset.
func (v *Version) WriteAt(b []byte, off int64) (int, error) {
	if err := v.trace.Report(Change{Step: StepWrite, Path: v.File.Name(), Off: off, Data: b}); err != nil {
		return 0, fmt.Errorf("write %s: %w", v.File.Name(), err)
	}
	return v.File.WriteAt(b, off)
}

// Reserve gives an empty version its length, in zeros, and takes the disk space for it.
func (v *Version) Reserve(size int64) error {
	if err := v.trace.Report(Change{Step: StepTruncate, Path: v.File.Name(), Off: size}); err != nil {
		return fmt.Errorf("reserve %d bytes for %s: %w", size, v.File.Name(), err)
	}
	return Reserve(v.File, 0, size)
}

// Commit makes the version durable and replaces the file by it. After an error it is unknown which of the two versions is there.
func (v *Version) Commit() error {
	name := v.File.Name()
	if err := v.trace.Report(Change{Step: StepSync, Path: name}); err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	if err := v.File.Sync(); err != nil {
		return err
	}
	if err := v.trace.Report(Change{Step: StepSynced, Path: name}); err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	return v.trace.Rename(name, v.path)
}

// Discard closes the version and removes the file at its temporary name.
func (v *Version) Discard() error {
	err := v.File.Close()
	if removed := os.Remove(v.File.Name()); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}
