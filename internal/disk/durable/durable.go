// Package durable replaces files so that after a crash the old version or the new one is there, complete. A [Version] is written under a
// temporary name in the same directory. Commit makes its bytes durable, renames it over the old file, and syncs the directory.
// [ReplaceFile] does all of that in one call. A [Trace] receives each step before it is taken: crash tests compute from the steps the
// possible states after a power cut, and fault tests make a step fail.
//
// The temporary name is fixed, so that the next attempt removes the file of a crashed one. So two concurrent writers of one path are not
// supported. Different paths may be replaced concurrently.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReplaceFile replaces the file at path, or creates it, with the contents b.
func ReplaceFile(path string, b []byte) error { return Trace(nil).ReplaceFile(path, b) }

// Replace replaces the file at path, or creates it, with the contents that fill writes. If fill fails, the old file stays.
func Replace(path string, fill func(v *Version) error) error { return Trace(nil).Replace(path, fill) }

// Rename moves a file within one directory, over any other. The contents must be durable already; when Rename returns nil the name is too.
func Rename(from, to string) error { return Trace(nil).Rename(from, to) }

// ReplaceFile is the function ReplaceFile with t as the Trace.
func (t Trace) ReplaceFile(path string, b []byte) error {
	return t.Replace(path, func(v *Version) error {
		_, err := v.Write(b)
		return err
	})
}

// Replace is the function Replace with t as the Trace.
func (t Trace) Replace(path string, fill func(v *Version) error) error {
	v, err := t.Begin(path)
	if err != nil {
		return err
	}
	if err = fill(v); err == nil {
		err = v.Commit()
	}
	if err != nil {
		return errors.Join(err, v.Discard())
	}
	return v.File.Close()
}

// Rename is the function Rename with t as the Trace.
func (t Trace) Rename(from, to string) error {
	if err := t.rename(from, to); err != nil {
		return err
	}
	return t.SyncDir(filepath.Dir(to))
}

func (t Trace) rename(from, to string) error {
	if err := t.Report(Change{Step: StepRename, Path: from, To: to}); err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return os.Rename(from, to)
}

// Remove removes the file at path, if there is one. When Remove returns nil the removal is durable.
func (t Trace) Remove(path string) error {
	if err := t.Report(Change{Step: StepRemove, Path: path}); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return t.SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func (t Trace) SyncDir(dir string) error {
	if err := t.Report(Change{Step: StepSync, Path: dir}); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return err
	}
	return t.Report(Change{Step: StepSyncedDir, Path: dir})
}
