package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lcache/internal/serve/status"
)

// TestQuickConnects: clients connect and disconnect after sending nothing, half of a HELLO, a HELLO without reading its answer (which has a descriptor), or
// garbage. They leave no connection, descriptor or goroutine behind. LCACHE_CONNECTS is the number of clients (1,000).
func TestQuickConnects(t *testing.T) {
	connects := 1000
	if n, err := strconv.Atoi(os.Getenv("LCACHE_CONNECTS")); err == nil {
		connects = n
	}
	var waitAlone func(*testing.T)
	s := start(t, testEngine(t, nil), func(s *Server) { waitAlone = reportAlone(s) })
	works(t, s)
	waitAlone(t)
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	hello := finish(append(begin(nil, typeHello, 1), `{"protocol":1,"client":"quick"}`...), 0)
	said := [][]byte{nil, hello[:3], hello, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")}
	began, full := time.Now(), 0
	for i := range connects {
		c, err := net.Dial("unix", s.Path())
		for end := time.Now().Add(20 * time.Second); errors.Is(err, unix.EAGAIN) && time.Now().Before(end); c, err = net.Dial("unix", s.Path()) {
			full++                       // the kernel's queue of connections is full; the Python client tries again, too
			time.Sleep(time.Millisecond) // the kernel does not report when the queue has room
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Write(said[i%len(said)]) // may fail, once the server has seen enough
		c.Close()
	}
	works(t, s)
	waitAlone(t)
	took := time.Since(began)
	if now := descriptors(t); len(now) > len(fds) {
		t.Errorf("%d descriptors, %d before: %q, %q before", len(now), len(fds), now, fds)
	}
	if now := runtime.NumGoroutine(); now > goroutines+2 { // the engine's own goroutines may run
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
	t.Logf("%d connects in %v, %d refused for now: %d descriptors, %d before; %d goroutines, %d before",
		connects, took, full, len(descriptors(t)), len(fds), runtime.NumGoroutine(), goroutines)
}

// reportAlone makes a server report when its last connection ends. The returned function connects once more, after all others, leaves, and waits for the report.
func reportAlone(s *Server) (waitAlone func(*testing.T)) {
	const idle = time.Hour
	ends := make(chan time.Time, 1) // the latest report
	s.opts.Idle, s.opts.Ends = idle, func(at time.Time) {
		select {
		case <-ends:
		default:
		}
		ends <- at
	}
	return func(t *testing.T) {
		t.Helper()
		c := attach(t, s, "")
		connected := time.Now()
		c.c.Close()
		c.memory.Close()
		for late := time.After(20 * time.Second); ; {
			select {
			case at := <-ends:
				if at.Add(-idle).After(connected) {
					return
				}
			case <-late:
				t.Fatal("a connection is left although all clients are gone")
			}
		}
	}
}

// descriptors returns the open descriptors of this process.
func descriptors(t *testing.T) (open []string) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if what, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // except for the one that listed them
			open = append(open, what)
		}
	}
	return open
}

func TestManyClientsAtOnce(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	var group sync.WaitGroup
	for i := range uint32(16) {
		c := attach(t, s, "")
		group.Go(func() {
			for k := range uint32(30) {
				got := c.batch(c.ask(typeGet, getBody((i*7+k)%testSamples, k)))
				got.check(t)
				c.send(typeRelease, releaseBody(got.lease))
			}
		})
	}
	group.Wait()
}

func TestSocketFile(t *testing.T) {
	e := testEngine(t, nil)
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("d", 120), "s.sock")
	if err := os.Mkdir(filepath.Dir(long), 0o700); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.sock")
	if err := os.Symlink(stale, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, refused string }{
		{"new", filepath.Join(dir, "new.sock"), ""},
		{"new directory", filepath.Join(dir, "sub", "new.sock"), ""},
		{"a leftover", stale, ""},
		{"long", long, ""},
		{"a plain file", plain, "is not a socket"},
		{"a link", link, "is not a socket"},
		{"no directory", filepath.Join(dir, "a", "b", "s.sock"), "directory"},
		{"long name", filepath.Join(dir, strings.Repeat("n", 120)), "too long"},
	} {
		s, err := Listen(e, Options{Path: tt.path})
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if st, err := os.Lstat(tt.path); err != nil || st.Mode().Perm() != 0o600 || st.Mode().Type() != os.ModeSocket {
			t.Errorf("%s: socket file %v, %v", tt.name, st, err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve() }()
		if tt.name != "long" { // Go's Dial can't; the Python client's tests do
			works(t, s)
			if _, err := Listen(e, Options{Path: tt.path}); err == nil || !strings.Contains(err.Error(), "in use by process") {
				t.Errorf("%s: a second server got %v", tt.name, err)
			}
			works(t, s)
		} else if _, err := Listen(e, Options{Path: tt.path}); err == nil || !strings.Contains(err.Error(), "in use by process") {
			t.Errorf("%s: a second server got %v", tt.name, err)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("%s: shutdown: %v", tt.name, err)
		}
		if err := <-served; err != nil {
			t.Errorf("%s: serve: %v", tt.name, err)
		}
		if _, err := os.Lstat(tt.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the socket file is still there: %v", tt.name, err)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "sub")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory that was made: %v, %v", st, err)
	}
	if b, _ := os.ReadFile(plain); string(b) != "precious" {
		t.Error("the plain file was touched")
	}
}

// Shutdown leaves a socket file with which a later server replaced ours.
func TestShutdownLeavesTheNextServersSocket(t *testing.T) {
	e := testEngine(t, nil)
	path := filepath.Join(t.TempDir(), "s.sock")
	first, err := Listen(e, Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(e, Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the second server's socket: %v", err)
	}
	if err := second.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := second.Serve(); err != nil {
		t.Errorf("serve after shutdown: %v", err)
	}
}

func TestShutdownTellsClients(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	idle, busy := attach(t, s, ""), attach(t, s, "")
	busy.batch(busy.ask(typeGet, getBody(3)))
	hello := dial(t, s.Path()) // has sent nothing yet
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	for _, c := range []*client{idle, busy} {
		if said := c.fails(); said.Kind != "closing" {
			t.Errorf("%+v, want closing", said)
		}
		c.end()
	}
	hello.end()
	if _, err := net.Dial("unix", s.Path()); err == nil {
		t.Error("a client could connect after Shutdown")
	}
}

// A request that waits for memory which another client holds is cancelled while there is time: the server ends cleanly.
func TestShutdownWithARequestThatWaits(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	holder, waits := attach(t, s, ""), attach(t, s, "")
	all := make([]uint32, testSamples)
	for i := range all {
		all[i] = uint32(i)
	}
	for held := 0; ; held++ { // until all memory is leased
		waits.send(typeGet, getBody(all...))
		waits.c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := waits.r.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil || held == 10_000 {
			t.Fatalf("%d leases of all samples: %v", held, err)
		}
		f := waits.receive()
		waits.send(typeRelease, releaseBody(waits.batch(f).lease))
		holder.batch(holder.ask(typeGet, getBody(all...)))
	}
	waits.c.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// A client that does not take its answers must not hold up Shutdown beyond its time.
func TestShutdownGivesUp(t *testing.T) {
	e := testEngine(t, nil)
	s, err := Listen(e, Options{Path: filepath.Join(t.TempDir(), "s.sock")})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	c := attach(t, s, "")
	c.c.SetWriteBuffer(8 << 20)
	names := append(columnOf(200_000), make([]byte, 4*200_000)...)
	c.send(typeNames, names) // 4 MB of answers that the client does not read
	if b, err := c.r.Peek(1); err != nil || len(b) != 1 {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown: %v, want the deadline", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("second shutdown: %v", err)
	}
}

// Connecting as another user, from a thread that has become that user, is refused unless its group is allowed.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: can't become another user")
	}
	const nobody, theirs = 65534, 54321
	e := testEngine(t, nil)
	for _, tt := range []struct {
		name   string
		allow  int
		groups []uint32
		gid    int
		kind   uint8
	}{
		{"no group is allowed", 0, nil, theirs, typeError},
		{"another group is allowed", theirs, nil, nobody, typeError},
		{"the group is allowed", theirs, nil, theirs, typeJSON},
		{"a supplementary group is allowed", theirs, []uint32{theirs}, nobody, typeJSON},
	} {
		dir, err := os.MkdirTemp("", "lcache-other-user-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		s, err := Listen(e, Options{Path: filepath.Join(dir, "s.sock"), Mode: 0o666, AllowGroup: tt.allow})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve() }()

		dialed := make(chan error, 1)
		var fd int
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
			dialed <- func() error {
				if len(tt.groups) > 0 {
					if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&tt.groups[0])), 0); errno != 0 {
						return errno
					}
				} else if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
					return errno
				}
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(tt.gid), uintptr(tt.gid), uintptr(tt.gid)); errno != 0 {
					return errno
				}
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
					return errno
				}
				var err error
				if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
					return err
				}
				return unix.Connect(fd, &unix.SockaddrUnix{Name: s.Path()})
			}()
		}()
		if err := <-dialed; err != nil {
			t.Fatalf("%s: connect: %v", tt.name, err)
		}
		file := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.Write(finish(append(begin(nil, typeHello, 1), `{"protocol":1,"client":"other"}`...), 0))
		f, err := readFrame(bufio.NewReader(c), maxFrame)
		if err != nil || f.kind != tt.kind {
			t.Errorf("%s: got type %d %s, %v, want type %d", tt.name, f.kind, f.body, err, tt.kind)
		}
		if tt.kind == typeError && !strings.Contains(string(f.body), `"denied"`) {
			t.Errorf("%s: %s", tt.name, f.body)
		}
		c.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// A client's REPORT is in the status document by the answer to its next request. It has no answer itself.
func TestReport(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	if !slices.Contains(c.info.Features, "report") {
		t.Fatalf("features %q", c.info.Features)
	}
	c.send(typeReport, []byte(`{"epoch": 0, "rank": 0, "loop_wait_seconds": 0.5, "loop_seconds": 2, "decode_seconds": 0.25}`))
	c.send(typeReport, []byte(`{"epoch": 0, "rank": 4000000000, "loop_wait_seconds": 9}`)) // the job may have fewer ranks, which is not an error
	c.send(typeReport, []byte(`{"decode_seconds": 0.25}`))
	var said status.Document
	if f := c.ask(typeStatus, nil); json.Unmarshal(f.body, &said) != nil {
		t.Fatalf("status: %s", f.body)
	}
	if j := said.Jobs[0]; j.LoopSeconds == nil || *j.LoopSeconds != 2 || j.DecodeSeconds == nil || *j.DecodeSeconds != 0.5 {
		t.Errorf("loop %v, decode %v, want 2 and 0.5", j.LoopSeconds, j.DecodeSeconds)
	}
	c.send(typeReport, []byte(`{"loop_seconds": -1}`))
	if f := c.fails(); f.Kind != "protocol" || !strings.Contains(f.Message, "REPORT") {
		t.Errorf("got %+v, want a protocol error that names REPORT", f)
	}
	works(t, s)
}
