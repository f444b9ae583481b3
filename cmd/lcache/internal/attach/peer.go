package attach

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/trust"
)

// checkServer asks the kernel for the user of the process that listens at the other end of a connection, and check whether that user's server may be used.
func checkServer(conn net.Conn, path string, check func(path string, uid int) error) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return fmt.Errorf("user of the server at %s: %w", path, err)
	}
	var cred *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		err = controlErr
	}
	if err != nil {
		return fmt.Errorf("user of the server at %s: %w", path, err)
	}
	if trust.IsMine(int(cred.Uid)) {
		return nil
	}
	return check(path, int(cred.Uid))
}

// ownServer refuses the server of another user.
func ownServer(path string, uid int) error {
	return errcode.Errorf(errcode.Untrusted, "the server at %s is user %d's, and was not named by you: give its socket, as --socket or LCACHE_SOCKET, if you mean it", path, uid)
}

// otherServer refuses the server of another user. Except: that user also made the socket, and no third user could replace it in its folder. If the socket is
// reached through a link, the folder that the link leads to is checked, too.
func otherServer(path string, uid int) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("look at the socket %s: %w", path, err)
	}
	for _, folder := range []string{filepath.Dir(path), filepath.Dir(real)} {
		if trust.IsOpen(folder) {
			return errcode.Errorf(errcode.Untrusted, "the server at %s is user %d's, and every user can put another socket into %s: have its owner run chmod o-w there, or take a socket in another folder", path, uid, folder)
		}
	}
	info, err := os.Stat(real)
	if err != nil {
		return fmt.Errorf("look at the socket %s: %w", path, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != uid {
		return errcode.Errorf(errcode.Untrusted, "the server at %s is user %d's, and the socket is another user's: start that server again, which makes its own socket", path, uid)
	}
	return nil
}
