package blockio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/iouring"
)

// These tests run this test binary again, under a limit that a process can't remove once it is set. The child
// runs the action that the value of childEnv names, prints the result and exits.
const childEnv = "LCACHE_BLOCKIO_CHILD"

func runChild(t *testing.T, what string, wrap ...string) string {
	t.Helper()
	args := append(wrap, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+what, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child %q: %v\n%s", what, err, out)
	}
	return string(out)
}

func child(what string) int {
	verb, arg, _ := strings.Cut(what, "=")
	run := childOpen
	switch verb {
	case "setup", "enter": // refuses that system call with the error number arg
		errno, err := strconv.Atoi(arg)
		if err != nil {
			fmt.Println(err)
			return 2
		}
		call := map[string]uint32{"setup": unix.SYS_IO_URING_SETUP, "enter": unix.SYS_IO_URING_ENTER}[verb]
		if err := refuse(call, uint32(errno)); err != nil {
			fmt.Println("seccomp:", err)
			return 0
		}
	case "memlock":
		run = childRegister
	}
	if err := run(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// refuse makes the kernel return an error number for a system call in all threads, like a container's seccomp
// profile.
func refuse(call, errno uint32) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the system call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	return nil
}

func childOpen() error {
	_, err := blockio.Open(blockio.Options{Engine: "uring"})
	var none *iouring.UnavailableError
	if !errors.As(err, &none) {
		return fmt.Errorf("uring: got %v, want an UnavailableError", err)
	}
	io, err := blockio.Open(blockio.Options{})
	if err != nil {
		return err
	}
	if err := useFile(io, nil); err != nil {
		return err
	}
	fmt.Printf("uring: %d; auto: %s; %s\n", int(none.Err), io.Name(), io.Reason())
	return io.Close()
}

func childRegister() error {
	io, err := blockio.Open(blockio.Options{})
	if err != nil {
		return err
	}
	mem, err := blockio.Alloc(32 << 20)
	if err != nil {
		return err
	}
	first := io.Name()
	if err := io.Register(mem); err != nil {
		return err
	}
	if err := useFile(io, mem[:1<<20]); err != nil {
		return err
	}
	fmt.Printf("%s, then %s; %s\n", first, io.Name(), io.Reason())
	return io.Close()
}

// useFile writes to a file and reads back.
func useFile(io *blockio.IO, mem []byte) error {
	if mem == nil {
		mem = make([]byte, 8192)[:0] // an empty transfer and a sync must work too
	}
	dir, err := os.MkdirTemp("", "blockio")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f, err := io.OpenFile(filepath.Join(dir, "file"), true)
	if err != nil {
		return err
	}
	want := bytes.Repeat([]byte{7}, len(mem))
	copy(mem, want)
	ctx := context.Background()
	if err := errors.Join(io.Write(ctx, f, 0, mem), f.Sync()); err != nil {
		return err
	}
	clear(mem)
	if err := io.Read(ctx, f, 0, mem); err != nil {
		return err
	}
	if !bytes.Equal(mem, want) {
		return errors.New("read back other bytes than were written")
	}
	return f.Close()
}

func TestWithoutRing(t *testing.T) {
	for _, c := range []struct {
		call  string
		errno unix.Errno
	}{
		{"setup", unix.EPERM}, {"setup", unix.ENOSYS}, {"setup", unix.ENOMEM}, {"setup", unix.EINVAL}, {"enter", unix.EPERM},
	} {
		t.Run(fmt.Sprintf("%s gives %s", c.call, unix.ErrnoName(c.errno)), func(t *testing.T) {
			out := runChild(t, fmt.Sprintf("%s=%d", c.call, int(c.errno)))
			if strings.HasPrefix(out, "seccomp:") {
				t.Skipf("no seccomp filter can be set here: %s", out)
			}
			want := fmt.Sprintf("uring: %d; auto: pread; no io_uring: ", int(c.errno))
			if !strings.HasPrefix(out, want) {
				t.Errorf("got %q, want it to begin with %q", out, want)
			}
		})
	}
}

// TestSmallMemlock removes the capability to lock memory, and nearly all of the limit.
func TestSmallMemlock(t *testing.T) {
	openEngine(t, "uring", "auto").Close()
	for _, tool := range []string{"setpriv", "prlimit"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("this test needs %s: %v", tool, err)
		}
	}
	wrap := []string{"prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"}
	if out, err := exec.Command(wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("rights can't be dropped here: %v: %s", err, out)
	}
	out := runChild(t, "memlock", wrap...)
	if !strings.HasPrefix(out, "io_uring, then io_uring (unregistered); ") || !strings.Contains(out, "ulimit -l") {
		t.Errorf("got %q, want a ring that works unregistered and logs the reason", out)
	}
}
