package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// How lcache status finds the servers of its user: every server keeps a small file, named by its pid, in a directory that only
// that user can write. The file is a hint and nothing more: a server that was killed leaves it, so a reader tries the socket.

// Dir is where this user's servers leave their files.
func Dir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lcache")
	}
	return filepath.Join(os.TempDir(), "lcache-"+strconv.Itoa(os.Getuid()))
}

// An Entry is one server's file.
type Entry struct {
	PID    int      `json:"pid"`
	Socket string   `json:"socket"` // absolute
	Cache  []string `json:"cache"`

	path string
}

// Register writes this process's file. What it returns with an error can be removed all the same.
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
	body, err := json.Marshal(e)
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

// freeName is PID-1.json, or PID-2.json and so on for a process with several servers. A name that a dead process of the same number
// left is passed over: nobody listens where it leads.
func freeName(dir, pid string) (string, error) {
	for n := 1; n < 1000; n++ {
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.json", pid, n))
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
	}
	return "", fmt.Errorf("registry %s is full: remove it", dir)
}

// ownDir makes dir, or sees to it that nobody else made it: in a shared /tmp another user could, and lead status to sockets of
// their own.
func ownDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make registry: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at registry: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || ok && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("registry %s is not a directory of this user alone: remove it", dir)
	}
	return nil
}

// Remove takes the file away. A nil Entry has none.
func (e *Entry) Remove() {
	if e != nil {
		os.Remove(e.path) // a leftover would only be skipped by its readers
	}
}

// Registered lists the servers that may be running, oldest name first, and removes files of processes that are gone.
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
		body, err := os.ReadFile(e.path)
		if err != nil || json.Unmarshal(body, &e) != nil || e.PID <= 0 {
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
