package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/trust"
)

// The registry is a directory with a small file for each server, named by the server's pid. Only the user can write to the directory. The file
// of a server that was killed stays, so a reader tries to connect to the socket.

// mostEntry bounds the size of an Entry's file, in bytes.
const mostEntry = 1 << 20

// Dir returns the directory of this user's registry.
func Dir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lcache")
	}
	return filepath.Join(os.TempDir(), "lcache-"+strconv.Itoa(os.Getuid()))
}

// An Entry is the file of one server.
type Entry struct {
	PID    int      `json:"pid"`
	Socket string   `json:"socket"` // absolute
	Cache  []string `json:"cache"`

	path string
}

// Register writes the file of a server of this process. With an error it returns a nil Entry.
func Register(dir, socket string, cache []string) (*Entry, error) {
	socket, err := filepath.Abs(socket)
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	if err := ownDir(dir); err != nil {
		return nil, err
	}
	e := &Entry{PID: os.Getpid(), Socket: socket, Cache: cache}
	if e.path, err = freeName(dir, strconv.Itoa(e.PID)); err != nil {
		return nil, err
	}
	body, err := jsonbytes.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode registry entry: %w", err)
	}
	temp := e.path + ".new"
	if err := os.WriteFile(temp, append(body, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("write registry entry: %w", err)
	}
	if err := os.Rename(temp, e.path); err != nil {
		return nil, fmt.Errorf("write registry entry: %w", err)
	}
	return e, nil
}

// freeName returns PID-1.json, or PID-2.json and so on for a process with several servers. It skips the files of a dead process that had the
// same pid.
func freeName(dir, pid string) (string, error) {
	for n := 1; n < 1000; n++ {
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.json", pid, n))
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil
		case err != nil:
			return "", fmt.Errorf("registry %s: %w", dir, err)
		}
	}
	return "", fmt.Errorf("registry %s is full: remove it", dir)
}

// ownDir makes dir, or checks that no other user can write it. In a shared /tmp another user could make it, and offer sockets of another
// program.
func ownDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make registry: %w", err)
	}
	switch err, untrusted := trust.Dir(dir), new(trust.Error); {
	case errors.As(err, &untrusted):
		return errcode.Errorf(errcode.Untrusted, "registry %s: remove it", untrusted.Reason())
	case err != nil:
		return errcode.Errorf(errcode.Untrusted, "registry %s is not a directory of this user: remove it", dir)
	}
	if info, err := os.Lstat(dir); err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() { // made by a sudo that kept this user's environment
		return errcode.Errorf(errcode.Untrusted, "registry %s belongs to root: have root remove it", dir)
	}
	return nil
}

// Remove takes the file away. A nil Entry has none.
func (e *Entry) Remove() {
	if e != nil {
		os.Remove(e.path) // after an error the file stays, and readers skip it
	}
}

// Registered lists the servers that may be running, by pid. It removes the files of processes that have ended.
func Registered(dir string) ([]Entry, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := ownDir(dir); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read registry: %w", err)
	}
	var found []Entry
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		e := Entry{path: filepath.Join(dir, f.Name())}
		body, err := trust.ReadFile(e.path, mostEntry)
		if err != nil || jsonbytes.Unmarshal(body, &e) != nil || e.PID <= 0 {
			continue
		}
		if errors.Is(syscall.Kill(e.PID, 0), syscall.ESRCH) {
			e.Remove()
			continue
		}
		found = append(found, e)
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].PID < found[j].PID }) // names are sorted
	return found, nil
}
