package logfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"lcache/internal/disk/durable"
	"lcache/internal/trust"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// Changes of a closed cache after its source has changed. The caller holds the directories' locks.

// ReadFormat returns the Format that the cache over dirs was created with.
func ReadFormat(dirs []string) (Format, error) {
	f, broken, err := readFormats(dirs)
	if err == nil {
		err = errors.Join(broken...) // all of them are required
	}
	return f, err
}

// Grow adds arena blocks to a cache. It reserves them before any FORMAT names them, and if the FORMATs of several directories differ, the
// smallest number counts. So an interrupted Grow leaves the cache unchanged and can be repeated. If there is too little space, the
// error is a *[NoSpaceError] and the cache is unchanged.
func Grow(dirs []string, places int) error {
	f, err := ReadFormat(dirs)
	if err != nil {
		return fmt.Errorf("grow cache: %w", err)
	}
	if places < f.Places {
		return fmt.Errorf("grow cache: to %d places, it has %d", places, f.Places)
	}
	f.Places = places
	if err := f.check(); err != nil {
		return fmt.Errorf("grow cache: %w", err)
	}
	for i, dir := range dirs {
		if err := checkSpace(dir, f.arenaSize(i, len(dirs))); err != nil {
			return fmt.Errorf("grow cache: %w", err)
		}
	}
	for i, dir := range dirs {
		if err := extend(filepath.Join(dir, arenaName), f.arenaSize(i, len(dirs))); err != nil {
			return fmt.Errorf("grow cache: %w", err)
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := durable.ReplaceFile(filepath.Join(dirs[i], formatName), encodeFormat(f, i, len(dirs))); err != nil {
			return fmt.Errorf("grow cache: %w", err)
		}
	}
	return nil
}

// extend is reserve for an arena with samples, which stay. If the disk is full, the arena gets its old length back.
func extend(path string, size int64) (err error) {
	f, err := trust.Open(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil || st.Size() >= size {
		return err
	}
	if err := durable.Reserve(f, st.Size(), size); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = &NoSpaceError{Dir: filepath.Dir(path), Need: size}
		}
		return errors.Join(err, f.Truncate(st.Size()))
	}
	return f.Sync()
}

// Reprint assigns the Logfiles of one manifest to another manifest. Both must have the same samples under the same indices; they may
// differ in other fields, such as labels. Each journal is replaced as a whole, so an interrupted Reprint leaves Logfiles of both.
func Reprint(dirs []string, from, to sample.Fingerprint) error {
	f, err := ReadFormat(dirs)
	if err != nil {
		return fmt.Errorf("rename journals: %w", err)
	}
	for num := range logs {
		path := journalIn(dirs[0], num)
		if err := reprint(path, f.seed(), from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rename journal %d: %w", num, err)
		}
	}
	return nil
}

func reprint(path string, seed uint64, from, to sample.Fingerprint) (err error) {
	old, err := trust.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer old.Close()
	h, gen, err := readHeader(old, seed)
	if err != nil || h.Fingerprint != from {
		return nil // Open leaves such a journal alone, and reports it
	}
	h.Fingerprint = to
	head := encodeHeader(h, gen, seed)
	st, err := old.Stat()
	if err != nil {
		return err
	}
	return durable.Replace(path, func(v *durable.Version) error {
		w := bufio.NewWriterSize(v, 1<<20)
		w.Write(head) // Flush returns its error
		if _, err := io.Copy(w, io.NewSectionReader(old, int64(len(head)), st.Size()-int64(len(head)))); err != nil {
			return err
		}
		return w.Flush()
	})
}
