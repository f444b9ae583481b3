package monitor

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"lcache/internal/errcode"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// InUseError says that the address for metrics belongs to another listener.
type InUseError struct {
	Err error
	Pid int // of the listener; 0: unknown, as for another user's process
}

// Code returns the code of the error.
func (*InUseError) Code() errcode.Code { return errcode.PortInUse }

func (e *InUseError) Error() string {
	if e.Pid == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v by process %d", e.Err, e.Pid)
}

func (e *InUseError) Unwrap() error { return e.Err }

// explain adds the process that listens there to the error of an address that is in use.
func explain(err error) error {
	op := new(net.OpError)
	if !errors.Is(err, unix.EADDRINUSE) || !errors.As(err, &op) {
		return err
	}
	used := &InUseError{Err: err}
	if addr, ok := op.Addr.(*net.TCPAddr); ok {
		used.Pid = holder(addr.AddrPort())
	}
	return used
}

// holder returns the process that listens where addr can't; 0: unknown. The kernel lists the inodes of all listening sockets, and a process's own user may see
// its descriptors.
func holder(addr netip.AddrPort) int {
	wanted := map[string]bool{} // targets of the descriptors' links
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // a kernel without IPv6
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if at, inode, ok := listener(lines.Text()); ok && conflict(at, addr) {
				wanted["socket:["+inode+"]"] = true
			}
		}
		f.Close()
	}
	if len(wanted) == 0 {
		return 0
	}
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		folder := filepath.Join("/proc", p.Name(), "fd")
		descriptors, _ := os.ReadDir(folder) // none of another user's process
		for _, d := range descriptors {
			if link, err := os.Readlink(filepath.Join(folder, d.Name())); err == nil && wanted[link] {
				return pid
			}
		}
	}
	return 0
}

// listener reads the address and the inode of a socket that listens from a line of /proc/net/tcp or tcp6 (proc(5)).
func listener(line string) (at netip.AddrPort, inode string, ok bool) {
	const listening = "0A"
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listening {
		return at, "", false
	}
	host, port, _ := strings.Cut(fields[1], ":")
	raw, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return at, "", false
	}
	for i := 0; i < len(raw); i += 4 { // four bytes are printed as one number of the machine
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), fields[9], ok
}

// conflict reports whether one socket can't listen at an address while another one does.
func conflict(a, b netip.AddrPort) bool {
	one, other := a.Addr().Unmap(), b.Addr().Unmap().WithZone("")
	return a.Port() == b.Port() && (one == other || one.IsUnspecified() || other.IsUnspecified() || !other.IsValid())
}
