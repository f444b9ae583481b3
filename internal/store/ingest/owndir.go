package ingest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/store/cachedir"
	"lcache/internal/trust"
	"lcache/internal/usage"
)

// ownDirectory handles the error of a directory that other users can write and that has no cache yet. It adds the command that makes a private directory.
func ownDirectory(err error) error {
	untrusted := new(trust.Error)
	if !errors.As(err, &untrusted) || untrusted.Owner == os.Geteuid() && untrusted.Mode&0o002 == 0 {
		return err // its owner can remove the permission
	}
	dir := untrusted.Path
	if _, readErr := os.ReadDir(dir); readErr != nil {
		return err // it is a file in a cache, or hides its content
	}
	if _, lookErr := cachedir.Look(dir); !errors.Is(lookErr, cachedir.ErrNotCache) {
		return err
	}
	own := filepath.Join(dir, "lcache-"+strconv.Itoa(os.Geteuid()))
	if unix.Access(dir, unix.W_OK) != nil {
		root, _, rootErr := cachedir.DefaultRoot()
		if rootErr != nil {
			return err
		}
		own = filepath.Join(root, filepath.Base(dir))
	}
	return errcode.Errorf(errcode.Untrusted, "%s: a cache needs a directory that only you can write: run mkdir -p -m 700 %s, and give it as --cache", untrusted.Reason(), usage.ShellWord(own))
}
