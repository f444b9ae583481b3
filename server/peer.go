package server

import (
	"fmt"
	"net"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peer returns the process that connected, and an error if its user may not connect. The server's user and root may, and they are owners; so may members
// of the allowed group (0: none). peer does not see a process that inherited the connection.
func peer(c *net.UnixConn, group int) (pid int, owner bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var groups []uint32
	var groupsErr error
	controlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && group > 0 {
			groups, groupsErr = peerGroups(int(fd))
		}
	})
	if controlErr != nil || err != nil {
		return 0, false, fmt.Errorf("peer credentials: %w", firstOf(controlErr, err))
	}
	owner = int(cred.Uid) == os.Geteuid() || cred.Uid == 0
	switch {
	case owner:
	case group > 0 && (int(cred.Gid) == group || groupsErr == nil && slices.Contains(groups, uint32(group))):
	default:
		return 0, false, &deniedError{fmt.Sprintf("user %d may not use this server of user %d", cred.Uid, os.Geteuid())}
	}
	if cred.Pid <= 0 {
		// Its leases would never end.
		return 0, false, &deniedError{"the server can't see the client's process, because they are in different pid namespaces"}
	}
	return int(cred.Pid), owner, nil
}

// A deniedError refuses a client that may not connect.
type deniedError struct{ reason string }

func (e *deniedError) Error() string { return e.reason }

// peerGroups returns the supplementary groups of the process at the other end.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 1<<16) // NGROUPS_MAX
	size := uint32(4 * len(groups))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil, errno
	}
	return groups[:size/4], nil
}

// firstOf returns the first error that is not nil.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
