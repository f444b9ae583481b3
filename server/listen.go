package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const sunPath = 107 // bytes for a path in sockaddr_un, without the final NUL

// place is the location of the socket: a name in a directory that stays open. So the socket stays the same if the path is renamed, and the path may be
// longer than sockaddr_un allows.
type place struct {
	path string // absolute
	name string
	dir  *os.File // O_PATH
	ino  uint64   // of our socket file, after listen
}

// openPlace opens the socket's directory. If it is missing, openPlace creates it, but no parents. The owner may use it, and the group may pass it.
func openPlace(path string, group int) (*place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	parent := filepath.Dir(path)
	if err := makeDir(parent, group); err != nil {
		return nil, fmt.Errorf("create the socket's directory: %w", err)
	}
	fd, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the socket's directory %s: %w", parent, err)
	}
	p := &place{path: path, name: filepath.Base(path), dir: os.NewFile(uintptr(fd), parent)}
	if len(p.address()) > sunPath {
		p.dir.Close()
		return nil, fmt.Errorf("socket %s: its last element is too long for a socket; choose another --socket", path)
	}
	return p, nil
}

func makeDir(dir string, group int) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && group > 0 {
		if err = advised(os.Chown(dir, -1, group), group); err == nil {
			err = os.Chmod(dir, 0o710)
		}
		if err != nil {
			os.Remove(dir) // otherwise the next attempt would find a directory that only its owner may pass
		}
	}
	return err
}

// advised adds to an error of chown the users that may give the file to the group.
func advised(err error, group int) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: only root or a member of group %d may start a server for it", err, group)
	}
	return err
}

// closedTo returns the first directory on the path to the socket that members of a group may not pass; "": none. It ignores access control lists.
func (p *place) closedTo(group int) string {
	var up []string
	for dir := filepath.Dir(p.path); ; dir = filepath.Dir(dir) {
		up = append(up, dir)
		if dir == "/" {
			break
		}
	}
	slices.Reverse(up)
	for _, dir := range up {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil && st.Mode&0o001 == 0 && (int(st.Gid) != group || st.Mode&0o010 == 0) {
			return dir
		}
	}
	return ""
}

// address returns a short path for bind and connect.
func (p *place) address() string {
	if len(p.path) <= sunPath {
		return p.path
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir.Fd(), p.name)
}

// clear removes the socket file of a server that has died. It fails if a process listens on the socket, or if the file is not a socket. The caller holds
// the cache's lock, so no other server clears this socket at the same time.
func (p *place) clear() error {
	var st unix.Stat_t
	err := unix.Fstatat(int(p.dir.Fd()), p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket %s: %w", p.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%s exists and is not a socket: remove it, or choose another --socket", p.path)
	}
	c, err := net.DialTimeout("unix", p.address(), time.Second)
	if err == nil {
		defer c.Close()
		return fmt.Errorf("socket %s is in use%s: stop that server, or choose another --socket", p.path, listener(c))
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot find out whether a server uses socket %s: %w", p.path, err)
	}
	if err := unix.Unlinkat(int(p.dir.Fd()), p.name, 0); err != nil {
		return fmt.Errorf("remove the leftover socket %s: %w", p.path, err)
	}
	return nil
}

// listener names the process that listens at the other end of a connection; "": unknown. The kernel records it when the process begins to listen.
func listener(c net.Conn) string {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return ""
	}
	said := ""
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid > 0 {
			said = fmt.Sprintf(" by process %d", cred.Pid)
		}
	})
	return said
}

// listen creates the socket. For a moment the socket has the mode that the umask leaves, but peer also checks a client that connects then.
func (p *place) listen(mode fs.FileMode, group int) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.address(), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", p.path, err)
	}
	l.SetUnlinkOnClose(false) // remove deletes it, and only if it is ours
	dir := int(p.dir.Fd())
	if group > 0 {
		err = advised(unix.Fchownat(dir, p.name, -1, group, unix.AT_SYMLINK_NOFOLLOW), group)
	}
	if err == nil {
		err = unix.Fchmodat(dir, p.name, uint32(mode.Perm()), 0)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstatat(dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("set mode and group of socket %s: %w", p.path, err)
	}
	p.ino = st.Ino
	return l, nil
}

// remove removes the socket file, unless another server has replaced it, and closes the directory.
func (p *place) remove() {
	var st unix.Stat_t
	dir := int(p.dir.Fd())
	if p.ino != 0 && unix.Fstatat(dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == p.ino {
		unix.Unlinkat(dir, p.name, 0)
	}
	p.dir.Close()
}
