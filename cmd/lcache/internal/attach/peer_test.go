package attach

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"lcache/cmd/lcache/internal/attach/attachtest"
)

// users are who serves in TestServersOfOthers, and a third one.
const (
	serverUser = 61001
	thirdUser  = 61002
)

// TestServersOfOthers: a server that lcache found must be this user's or root's. One that the user named may be another's, if that user made the socket and no third user could replace it.
func TestServersOfOthers(t *testing.T) {
	const variable = "ATTACH_TEST_SOCKET"
	if path := os.Getenv(variable); path != "" {
		serveOnce(t, path)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	// The test is root, and root trusts itself alone: as strict as any other user is with a third one.
	for _, c := range []struct {
		name       string
		server     int // user
		socket     int // owner of the socket file; 0: the server's user
		mode       uint32
		found      bool
		want       string
		symlinkVia uint32 // mode of a folder in which a link stands for the socket; 0: none
	}{
		{"own, found", 0, 0, 0o755, true, "", 0},
		{"own, named", 0, 0, 0o777, false, "", 0},
		{"another's, found", serverUser, 0, 0o755, true, "is user 61001's, and was not named by you", 0},
		{"another's, named", serverUser, 0, 0o755, false, "", 0},
		{"another's, named, in a folder for its group", serverUser, 0, 0o770, false, "", 0},
		{"another's, named, in a folder like /tmp", serverUser, 0, 0o1777, false, "", 0},
		{"another's, named, in a folder that all can change", serverUser, 0, 0o777, false, "every user can put another socket into", 0},
		{"another's, named, the socket a third one's", serverUser, thirdUser, 0o1777, false, "and the socket is another user's", 0},
		{"another's, named by a link", serverUser, 0, 0o755, false, "", 0o755},
		{"another's, named by a link that all can change", serverUser, 0, 0o755, false, "every user can put another socket into", 0o777},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for folder := dir; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
				if err := os.Chmod(folder, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			folder := filepath.Join(dir, "run")
			if err := errors.Join(os.Mkdir(folder, 0o755), os.Chown(folder, c.server, c.server), syscall.Chmod(folder, c.mode)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(folder, "s")
			if c.server == 0 {
				attachtest.Answer(t, path, attachtest.Frame(1, frameJSON, 1, `{}`))
			} else {
				startAs(t, c.server, variable, path)
			}
			if c.socket != 0 {
				if err := os.Chown(path, c.socket, c.socket); err != nil {
					t.Fatal(err)
				}
			}
			if c.symlinkVia != 0 {
				link := filepath.Join(dir, "links", "s")
				if err := errors.Join(os.Mkdir(filepath.Dir(link), 0o700), syscall.Chmod(filepath.Dir(link), c.symlinkVia), os.Symlink(path, link)); err != nil {
					t.Fatal(err)
				}
				path = link
			}
			dial := Dial
			if c.found {
				dial = DialFound
			}
			client, err := dial(path, "a test")
			if err == nil {
				client.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// startAs runs this test again as another user, and returns when that process listens at path.
func startAs(t *testing.T, uid int, variable, path string) {
	t.Helper()
	server := exec.Command("/proc/self/exe", "-test.run=^TestServersOfOthers$")
	server.Dir, server.Env = filepath.Dir(path), append(os.Environ(), variable+"="+path)
	server.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	line := make([]byte, len(listens))
	if n, err := out.Read(line); err != nil || string(line[:n]) != listens {
		t.Fatalf("user %s does not listen: %q, %v", strconv.Itoa(uid), line[:n], err)
	}
}

const listens = "listens\n"

// serveOnce answers the HELLO of one client.
func serveOnce(t *testing.T, path string) {
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Stdout.WriteString(listens)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1<<16)); err == nil {
		conn.Write(attachtest.Frame(1, frameJSON, 1, `{}`))
	}
	conn.Read(make([]byte, 1)) // until the client leaves
}
