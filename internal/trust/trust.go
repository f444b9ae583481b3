// Package trust opens files that lcache wrote and reads back later: files of caches, the registry of servers, and
// measurements of disks.
//
// Folders such as /nvme or /tmp are shared, and another user may have created a file or a directory there before
// lcache does. The contents of such a file can't be checked: the writer of a sample's bytes also wrote its checksum.
// So [Open], [OpenFd] and [ReadFile] check after opening which users could have written the file, and [Dir] checks a
// directory. An [*Error] means that a user other than this one or root could have. Root trusts only root. [IsMine] is
// the same rule for the user of a server.
//
// The package does not check sockets, because --socket-group widens their mode on purpose. It does not check the
// folders above a cache, but [OpenFolder] finds folders that every user can write. It checks owners and modes, not
// contents. All functions may be called concurrently.
package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/usage"
)

// writable has the permissions that let other users write.
const writable = 0o022

// An Error means that other users could have written a file or a directory. It matches fs.ErrPermission.
type Error struct {
	Path  string
	Owner int    // user id
	Mode  uint32 // permissions, as for chmod
}

// Reason returns the cause, without advice.
func (e *Error) Reason() string {
	switch {
	case IsMine(e.Owner):
		return fmt.Sprintf("%s can be written by other users: it belongs to %s and has mode %04o", e.Path, userName(e.Owner), e.Mode)
	case os.Geteuid() == 0:
		return fmt.Sprintf("%s belongs to %s, and root trusts only what belongs to root", e.Path, userName(e.Owner))
	}
	return fmt.Sprintf("%s belongs to %s, not to %s or root", e.Path, userName(e.Owner), userName(os.Geteuid()))
}

// Code returns the code of the error.
func (*Error) Code() errcode.Code { return errcode.Untrusted }

func (e *Error) Error() string {
	if IsMine(e.Owner) {
		who := ""
		if e.Owner != os.Geteuid() {
			who = "have root "
		}
		return fmt.Sprintf("%s: %srun chmod -R go-w %s, or give another --cache", e.Reason(), who, usage.ShellWord(e.Path))
	}
	advice := "give another --cache, or if you know who wrote it have root run"
	if os.Geteuid() == 0 {
		// An administrator can act as that user to stop, verify or remove the user's cache. Taking over the cache would
		// break a running server.
		advice = fmt.Sprintf("do it as that user (sudo -u '#%d' with the same command), give another --cache, or if no server of that user has it and you know who wrote it run", e.Owner)
	}
	return fmt.Sprintf("%s: %s chown -R %d %s", e.Reason(), advice, os.Geteuid(), usage.ShellWord(e.Path))
}

func (e *Error) Is(target error) bool { return target == fs.ErrPermission }

// userName returns a user's name for a message, or the number if the name is not known.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && u.Username != "" {
		return fmt.Sprintf("user %d (%s)", uid, u.Username)
	}
	return fmt.Sprintf("user %d", uid)
}

// IsMine reports whether a user is the effective user of this process, or root.
func IsMine(uid int) bool { return uid == os.Geteuid() || uid == 0 }

// Open opens a regular file that no other user can write. It never follows a symbolic link, and never waits, as
// opening a pipe would. With O_CREATE, a new file has mode 0600. O_TRUNC must not be given, because it would empty
// the file before the check.
func Open(path string, flag int) (*os.File, error) {
	fd, err := OpenFd(path, flag)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenFd is Open for a caller that needs only the descriptor. The flags may include O_DIRECT.
func OpenFd(path string, flag int) (fd int, err error) {
	// O_NONBLOCK prevents a wait for the other end of a pipe. O_NOCTTY prevents that a terminal becomes the controlling
	// terminal.
	flag |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	for fd, err = unix.Open(path, flag, 0o600); errors.Is(err, unix.EINTR); {
		fd, err = unix.Open(path, flag, 0o600)
	}
	switch {
	case errors.Is(err, unix.ELOOP):
		return -1, fmt.Errorf("%w (a symbolic link where a file of the cache should be: remove it)", &fs.PathError{Op: "open", Path: path, Err: err})
	case err != nil:
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err = check(fd, path, unix.S_IFREG); err == nil {
		err = block(fd, path)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// block removes O_NONBLOCK. With it, io_uring would answer EAGAIN to a read that must wait for the disk.
func block(fd int, path string) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_NONBLOCK)
	}
	if err != nil {
		return &fs.PathError{Op: "fcntl", Path: path, Err: err}
	}
	return nil
}

// check returns an error if the opened file is not of type kind, or if another user could have written it.
func check(fd int, path string, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != kind {
		return fmt.Errorf("%s is not a regular file (mode %#o): remove it", path, st.Mode)
	}
	return checkOwner(path, &st)
}

func checkOwner(path string, st *unix.Stat_t) error {
	if !IsMine(int(st.Uid)) || st.Mode&writable != 0 {
		return &Error{Path: path, Owner: int(st.Uid), Mode: st.Mode & 0o7777}
	}
	return nil
}

// ReadFile reads a whole file that no other user can write, of at most most bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes: it is not a file of lcache", path, info.Size())
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// Dir returns an error if another user can write to a directory, or if the last element of path is a symbolic link.
func Dir(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return check(fd, path, unix.S_IFDIR)
}

// File checks a file without opening it. It accepts anything that is not a regular file, because Open refuses that.
func File(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	return checkOwner(path, &st)
}

// OpenFolder returns the first folder above path in which every user can replace the entries, or "". A folder with
// the sticky bit, such as /tmp, does not count.
func OpenFolder(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	folder := filepath.Dir(path)
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	for ; ; folder = filepath.Dir(folder) {
		if IsOpen(folder) {
			return folder
		}
		if folder == filepath.Dir(folder) {
			return ""
		}
	}
}

// IsOpen reports whether every user can remove the entries of other users from a folder.
func IsOpen(folder string) bool {
	var st unix.Stat_t
	return unix.Stat(folder, &st) == nil && st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0
}
