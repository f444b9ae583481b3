package cachedir

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"lcache/internal/trust"
)

// CheckTrust returns a *trust.Error if other users could have written to a directory, or to a file that lcache makes in a cache. It ignores
// directories that can't be read, and files that are not regular: opening them reports the error.
func CheckTrust(dir string) error {
	if untrusted := new(trust.Error); errors.As(trust.Dir(dir), &untrusted) {
		return untrusted
	}
	c := Cache{Dir: dir}
	for _, name := range c.files() {
		path := filepath.Join(dir, name)
		if untrusted := new(trust.Error); errors.As(trust.File(path), &untrusted) {
			return untrusted
		}
	}
	return nil
}

// WarnOfFolders logs one warning if a folder above a directory of the cache lets every user replace that directory.
func WarnOfFolders(log *slog.Logger, dirs []string) {
	for _, dir := range dirs {
		if folder := trust.OpenFolder(dir); folder != "" {
			log.Warn("every user can replace the cache's directory: run chmod +t on this folder, or give another --cache", "folder", folder, "cache", dir)
			return
		}
	}
}

// checkCache is CheckTrust for a directory that looks like a cache.
func checkCache(dir string) error {
	for _, name := range []string{jobName, formatName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return CheckTrust(dir)
		}
	}
	return nil
}
