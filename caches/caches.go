// Package caches knows caches from outside: where they lie by default and on which file systems they may, which ones a root holds,
// who uses them, and how one is removed. A Cache describes one directory; List, Look and Remove are all there is to do with it.
//
// Nothing here opens a cache, reads a sample or needs the cache's source: what is unfinished, damaged or made by another version
// of lcache can be listed and removed all the same. All functions may be called concurrently, also beside running servers.
package caches

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Cache is one directory of a cache. Of a cache over several directories each is one, and only the first knows the source.
type Cache struct {
	Dir     string    `json:"dir"`
	Source  string    `json:"source"` // "": not known here
	Bytes   int64     `json:"bytes"`  // what its files take on disk
	LastUse time.Time `json:"last_use"`
	Pid     int       `json:"pid"` // of who uses it now; 0: nobody
	Part    int       `json:"part"`
	Parts   int       `json:"parts"`          // directories that the cache has; Part counts from 0
	Link    string    `json:"link,omitempty"` // Dir is a link to this directory, and not used as a cache
	Listing `json:"-"`
	Files   map[string]int64 `json:"-"` // how many have each extension; nil: not known here
	Memory  int64            `json:"-"` // as given to ingest; 0: not given
	Job     json.RawMessage  `json:"-"` // as ingest was given it; nil: not known here
}

// A Listing is what of a source a cache lists, and as what: the flags of ingest that say so.
type Listing struct {
	Exts   []string `json:"exts"`
	Flat   bool     `json:"flat"`
	Group  string   `json:"group"`  // "" or "stem"
	Labels string   `json:"labels"` // a file, absolute

	// The rule about links, and how many samples are reached through one that leaves the source. Two rules never make two datasets:
	// they give the same listing, or one of them is an error. So the name of a cache's folder does not depend on them.
	FollowLinks  bool `json:"follow_links"`
	FollowGiven  bool `json:"follow_links_given"` // the user said so
	OutsideLinks int  `json:"outside_links"`
}

// ErrNotCache says that a directory is not a cache.
var ErrNotCache = errors.New("not a cache")

// InUse is the error of removing a cache that a process uses.
type InUse struct {
	Dir string
	Pid int // 0: not known
}

func (e *InUse) Error() string {
	if e.Pid == 0 {
		return e.Dir + " is in use: stop its server first"
	}
	return fmt.Sprintf("%s is in use by process %d: stop it first", e.Dir, e.Pid)
}

const (
	jobName    = "job.json"
	formatName = "FORMAT"
	lockName   = "LOCK"
	openName   = "open.lock" // of the Python client, while it lists and starts a server
)

// files are all that lcache makes in a cache. Longer names are what a rename would have replaced.
var files = []string{jobName, jobName + ".new", "manifest", "manifest.listed", "manifest.new", "manifest.listed.new", "listing", "listing.new", "sums", "sums.new", "sums.next", "sums.next.new", "sums.tmp", "stored", "stored.new",
	formatName, formatName + ".tmp", "arena", "journal-0", "journal-0.tmp", "journal-1", "journal-1.tmp", "lcache.sock", "serve.log", openName, lockName}

// older is the manifest of a source as it was before a change, by its fingerprint, until the cache is adapted to that.
var older = regexp.MustCompile(`^manifest-[0-9a-f]{32}$`)

// isOlder names the files that have no fixed name.
func isOlder(name string) bool { return older.MatchString(name) }

// files are those that lcache may have made in the directory.
func (c *Cache) files() []string {
	all := slices.Clone(files)
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return all
	}
	for _, e := range entries {
		if isOlder(e.Name()) {
			all = append(all, e.Name())
		}
	}
	return all
}

// Look describes dir. The error wraps ErrNotCache if it is there and is no cache, and is a *LinkError beside the description if it is a link
// to one.
func Look(dir string) (Cache, error) {
	c := Cache{Dir: dir, Parts: 1}
	if info, err := os.Stat(dir); err != nil {
		return c, fmt.Errorf("look at the cache: %w", err)
	} else if !info.IsDir() {
		return c, fmt.Errorf("%s is %w: it is no directory", dir, ErrNotCache)
	}
	hasFormat := c.readFormat()
	if !c.readJob() && !hasFormat {
		return c, fmt.Errorf("%s is %w: it has neither %s nor %s", dir, ErrNotCache, jobName, formatName)
	}
	for _, name := range c.files() {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, name), &st) != nil {
			continue
		}
		c.Bytes += st.Blocks * 512
		if name != lockName && !strings.HasPrefix(name, "journal-") && name != jobName {
			continue
		}
		if used := time.Unix(st.Mtim.Unix()); used.After(c.LastUse) {
			c.LastUse = used
		}
	}
	c.Pid = holder(filepath.Join(dir, lockName))
	if c.Pid != 0 {
		c.LastUse = time.Now()
	}
	return c, CheckLink(dir)
}

// readFormat looks only at what every version of the file begins with, and at the number of directories, which none has moved.
func (c *Cache) readFormat() bool {
	b, err := readSmall(filepath.Join(c.Dir, formatName))
	if err != nil || len(b) < 8 || string(b[:8]) != "LCACHEF\n" {
		return false
	}
	if len(b) >= 56 {
		if parts, part := binary.LittleEndian.Uint32(b[48:]), binary.LittleEndian.Uint32(b[52:]); part < parts && parts < 1<<16 {
			c.Parts, c.Part = int(parts), int(part)
		}
	}
	return true
}

func (c *Cache) readJob() bool {
	b, err := readSmall(filepath.Join(c.Dir, jobName))
	var j struct {
		Schema int    `json:"schema"`
		Source string `json:"source"`
		Listing
		Extensions struct {
			Files map[string]int64 `json:"files"`
		} `json:"extensions"`
		Memory int64           `json:"memory"`
		Job    json.RawMessage `json:"job"`
	}
	if err != nil || json.Unmarshal(b, &j) != nil || j.Schema < 1 || j.Source == "" {
		return false
	}
	c.Source, c.Memory, c.Job = j.Source, j.Memory, j.Job
	c.Listing, c.Files = j.Listing, j.Extensions.Files
	return true
}

// readSmall reads what lcache wrote, and not what a link points at.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > 16<<20 {
		return nil, fmt.Errorf("%s is not a file of lcache", path)
	}
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	return b, err
}

// holder is the process that holds a lock file; 0: none. A shared lock shows that for a moment, which a server that starts just
// then waits out.
func holder(path string) int {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return 0
	}
	return pidIn(f)
}

// pidIn is the number that a lock file begins with.
func pidIn(f *os.File) int {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	digits, _, _ := strings.Cut(strings.ReplaceAll(string(b[:n]), ":", "\n"), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(digits))
	return pid
}

// List describes root if it is a cache, and the caches in it, by name.
func List(root string) ([]Cache, error) {
	var found []Cache
	var link *LinkError
	if c, err := Look(root); err == nil {
		found = append(found, c)
	} else if errors.As(err, &link) {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return found, fmt.Errorf("list caches: %w", err)
	}
	for _, e := range entries {
		c, err := Look(filepath.Join(root, e.Name()))
		if errors.Is(err, ErrNotCache) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.As(err, &link) {
			c, err = Cache{Dir: c.Dir, LastUse: c.LastUse, Parts: c.Parts, Part: c.Part, Link: link.Target}, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// Within names the caches in a directory, for a message to a user who gave the root; "" if there is none. The directory itself does not count.
func Within(root string) string {
	found, _ := List(root)
	found = slices.DeleteFunc(found, func(c Cache) bool { return c.Dir == root })
	if len(found) == 0 {
		return ""
	}
	const most = 5
	var names []string
	for _, c := range found[:min(most, len(found))] {
		names = append(names, c.Dir)
	}
	if len(found) > most {
		names = append(names, fmt.Sprintf("%d more", len(found)-most))
	}
	return strings.Join(names, ", ")
}

// foreign lists what lies in dir and is not lcache's.
func foreign(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !slices.Contains(files, e.Name()) && !isOlder(e.Name()) || e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// ListAll lists the caches in all roots that are there, and then the caches in dirs that no root has.
func ListAll(roots, dirs []string) ([]Cache, error) {
	all := []Cache{}
	for _, root := range roots {
		found, err := List(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return all, err
		}
		all = append(all, found...)
	}
	for _, dir := range dirs {
		known := slices.ContainsFunc(all, func(c Cache) bool { return c.Dir == dir })
		if c, err := Look(dir); err == nil && !known {
			all = append(all, c)
		}
	}
	return all, nil
}
