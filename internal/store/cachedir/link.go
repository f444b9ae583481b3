package cachedir

import (
	"fmt"
	"io/fs"
	"lcache/internal/errcode"
	"os"
	"path/filepath"
)

// A LinkError reports that a cache's directory is a symbolic link. Folders above it may be links. The directory and the files in it must not
// be.
type LinkError struct {
	Dir    string
	Target string // where the link leads; "": nowhere
}

// Code returns the code of the error.
func (*LinkError) Code() errcode.Code { return errcode.Link }

func (e *LinkError) Error() string {
	if e.Target == "" {
		return e.Dir + " is a link to nothing: remove it, or give another --cache"
	}
	return fmt.Sprintf("%s is a link: give the directory that it leads to, %s", e.Dir, e.Target)
}

// CheckLink returns a *LinkError if a directory is a link. A missing directory is not a link.
func CheckLink(dir string) error {
	dir = filepath.Clean(dir) // with a trailing slash, a link is its target
	if info, err := os.Lstat(dir); err != nil || info.Mode().Type() != fs.ModeSymlink {
		return nil
	}
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		target = ""
	}
	return &LinkError{dir, target}
}
