package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lcache/internal/disk/durable"
)

// Checks of a cache's directories before they are written to. The caller holds their locks.

// CheckDirs returns an error unless the directories belong to one cache, in the order of its creation: files made in them would destroy
// another cache. It knows nothing of a directory whose FORMAT is missing or damaged, and accepts it. Except: if only later directories
// have a FORMAT, the first one must hold the files of an interrupted Create.
func CheckDirs(dirs []string) error {
	var cache *Format
	first := 0 // the directory whose cache counts
	for i, dir := range dirs {
		b, err := readSmall(filepath.Join(dir, formatName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		f, number, of, err := decodeFormat(b)
		switch {
		case errors.Is(err, ErrDamaged):
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", dir, err)
		case cache != nil && !sameCache(f, *cache):
			return fmt.Errorf("%s belongs to another cache than %s: name another directory, or remove that cache with lcache rm", dir, dirs[first])
		case number != i || of != len(dirs):
			return fmt.Errorf("%s is directory %d of %d of a cache, given as %d of %d: give all of them in the order of their creation, name another directory, or remove that cache with lcache rm",
				dir, number+1, of, i+1, len(dirs))
		}
		if cache == nil {
			cache, first = &f, i
		}
	}
	if cache == nil || first == 0 {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dirs[0], formatName)); err == nil {
		return nil // it is damaged
	}
	if st, err := os.Lstat(filepath.Join(dirs[0], arenaName)); err == nil && st.Size() == cache.arenaSize(0, len(dirs)) {
		return nil
	}
	return fmt.Errorf("%s belongs to a cache whose first directory is not %s, or was lost: name another directory, or remove that cache's remains with lcache rm", dirs[first], dirs[0])
}

// Mend rewrites FORMAT in each directory except the first, if FORMAT is damaged and the arena is complete. It returns their names. The
// blocks in them are used again, because each sample has a checksum. A directory without FORMAT is left alone, because its disk may only be unmounted.
func Mend(dirs []string) (mended []string, err error) {
	f, broken, err := readFormats(dirs)
	if err != nil {
		return nil, err
	}
	for i, why := range broken {
		if !errors.Is(why, ErrDamaged) {
			continue
		}
		if st, err := os.Lstat(filepath.Join(dirs[i], arenaName)); err != nil || st.Size() < f.arenaSize(i, len(dirs)) {
			continue // its samples are lost
		}
		if err := durable.ReplaceFile(filepath.Join(dirs[i], formatName), encodeFormat(f, i, len(dirs))); err != nil {
			return mended, fmt.Errorf("mend %s: %w", dirs[i], err)
		}
		mended = append(mended, dirs[i])
	}
	return mended, nil
}
