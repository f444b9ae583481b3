// Package cachedir finds, describes and removes caches on disk, without opening them. It knows the default folder of caches, the file systems
// that a cache may be on, and the process that uses a cache.
//
// A Cache describes one directory. Look, List and ListAll make descriptions, Remove and RemoveAll remove caches. The package reads no sample
// and needs no source, so it can also list and remove caches that are unfinished, damaged or made by another version of lcache. All functions
// may be called concurrently, and while servers run.
package cachedir

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/trust"
)

// A Cache is one directory of a cache. A cache over several directories has one for each, and only the first has the source.
type Cache struct {
	Dir       string     `json:"dir"`
	Source    string     `json:"source"` // "": unknown here
	Identity  string     `json:"-"`      // of a source KIND:@FILE
	Bytes     int64      `json:"bytes"`  // space of its files on disk
	LastUse   time.Time  `json:"last_use"`
	Pid       int        `json:"pid"`            // of the process that uses it; 0: none
	Ends      *time.Time `json:"ends,omitempty"` // when that process exits if no client connects; nil: never
	Part      int        `json:"part"`
	Parts     int        `json:"parts"`               // directories that the cache has; Part counts from 0
	Link      string     `json:"link,omitempty"`      // Dir is a symbolic link to this directory, and not used as a cache
	Untrusted string     `json:"untrusted,omitempty"` // why Dir is not used: other users could have written to it
	Listing   `json:"-"`
	Files     map[string]int64 `json:"-"` // number of files with each extension; nil: unknown here
	Memory    int64            `json:"-"` // as given to ingest; 0: not given
	Job       json.RawMessage  `json:"-"` // as given to ingest; nil: unknown here
}

// A Listing has the flags of ingest that select the samples of a source, and their labels.
type Listing struct {
	Exts   []string `json:"exts"`
	Flat   bool     `json:"flat"`
	Group  string   `json:"group"`  // "" or "stem"
	Labels string   `json:"labels"` // a file, absolute
	Remote struct {
		S3 struct {
			Endpoint string `json:"endpoint_url"` // of a bucket: the same name is another bucket at another endpoint
		} `json:"s3"`
	} `json:"remote"`

	FirstPart string `json:"first_part,omitempty"` // --part

	RecordFlags map[string]string `json:"record_flags,omitempty"` // of a source of records, by the flags' names

	// The rule about links, and the number of samples that are reached through a link out of the source. Two rules never make two datasets:
	// they give the same listing, or one of them is an error. So the name of a cache's folder does not depend on them.
	FollowLinks  bool `json:"follow_links"`
	FollowGiven  bool `json:"follow_links_given"` // the user gave the flag
	OutsideLinks int  `json:"outside_links"`
}

// ErrNotCache means that a directory is not a cache.
var ErrNotCache = errcode.New(errcode.NotACache, "not a cache")

// InUse is the error of removing a cache that a process uses.
type InUse struct {
	Dir  string
	Pid  int        // 0: unknown
	Ends *time.Time // as in Cache
}

// Code returns the code of the error.
func (*InUse) Code() errcode.Code { return errcode.InUse }

func (e *InUse) Error() string {
	if e.Pid == 0 {
		return e.Dir + " is in use: stop its server first"
	}
	left := ""
	if e.Ends != nil {
		left = fmt.Sprintf(", which has no client and exits in %d s", max(0, int(math.Ceil(time.Until(*e.Ends).Seconds()))))
	}
	return fmt.Sprintf("%s is in use by process %d%s: stop it first, with lcache stop %d", e.Dir, e.Pid, left, e.Pid)
}

const (
	jobName    = "job.json"
	formatName = "FORMAT"
	lockName   = "LOCK"
	openName   = "open.lock"        // of the Python client, while it lists and starts a server
	indexName  = "lcache-index.tsv" // of the Python client: the ranges that a program gave
	linkName   = "lcache-files"     // of the Python client: a link to /, below which the index names files
	listName   = "lcache-list"      // of the Python client: the files of a dataset
)

// files are the names of all files that lcache makes in a cache. Longer names belong to files before their rename.
var files = []string{jobName, jobName + ".new", "manifest", "manifest.listed", "manifest.new", "manifest.listed.new", "listing", "listing.new", "inodes", "inodes.new", "inodes.next", "inodes.next.new", "shards", "shards.new", "sums", "sums.new", "sums.next", "sums.next.new", "sums.tmp", "stored", "stored.new",
	formatName, formatName + ".new", formatName + ".tmp", "arena", "journal-0", "journal-0.new", "journal-0.tmp", "journal-1", "journal-1.new", "journal-1.tmp", "journal-packages", "journal-packages.new", "places", "places.new", "line-0", "line-0.new", "line-1", "line-1.new", "lcache.sock", "serve.log", openName, indexName, linkName, listName, lockName}

// older matches the manifest of a source before a change. Its name has the fingerprint. It stays until the cache is adapted to the change.
var older = regexp.MustCompile(`^manifest-[0-9a-f]{32}$`)

// observed matches the state of a job's importance. Its name includes the job's name, of at most 64 letters. A longer name belongs to the file before its rename.
var observed = regexp.MustCompile(`^importance-[A-Za-z0-9][A-Za-z0-9._-]{0,63}(\.new)?$`)

// Makes reports whether lcache makes a file of that name in a cache.
func Makes(name string) bool { return slices.Contains(files, name) || isOurs(name) }

// isUnfinished reports whether a directory has only files of lcache, one of them a lock: an ingest or a client was killed before the cache was made.
func isUnfinished(dir string) bool {
	entries, err := os.ReadDir(dir)
	locked := false
	for _, e := range entries {
		if !Makes(e.Name()) || !e.Type().IsRegular() {
			return false
		}
		locked = locked || e.Name() == lockName || e.Name() == openName
	}
	return err == nil && locked
}

// isOurs reports whether a name belongs to an older manifest, or to a job's importance.
func isOurs(name string) bool { return older.MatchString(name) || observed.MatchString(name) }

// files returns the names of the files that lcache may have made in the directory.
func (c *Cache) files() []string {
	all := slices.Clone(files)
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return all
	}
	for _, e := range entries {
		if isOurs(e.Name()) {
			all = append(all, e.Name())
		}
	}
	return all
}

// Look describes dir. The error wraps ErrNotCache if dir exists and is not a cache. If dir is a link to a cache, Look returns the description
// and a *LinkError. For a cache that other users could have written to it returns a *trust.Error, and none of the cache's content.
func Look(dir string) (Cache, error) { return look(dir, false) }

// look is Look. With unfinished, a directory that an ingest left before the cache was made also counts.
func look(dir string, unfinished bool) (Cache, error) {
	c := Cache{Dir: dir, Parts: 1}
	if info, err := os.Stat(dir); err != nil {
		return c, fmt.Errorf("look at the cache: %w", err)
	} else if !info.IsDir() {
		return c, fmt.Errorf("%s is %w: it is not a directory", dir, ErrNotCache)
	}
	if err := checkCache(dir); err != nil {
		return c, err
	}
	hasFormat := c.readFormat()
	if !c.readJob() && !hasFormat && !(unfinished && isUnfinished(dir)) {
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
	c.Pid, c.Ends = holder(filepath.Join(dir, lockName))
	if c.Pid != 0 {
		c.LastUse = time.Now()
	}
	return c, CheckLink(dir)
}

// readFormat reads the magic of FORMAT, and the number of directories. Both are at the same offset in every version of the file.
func (c *Cache) readFormat() bool {
	b, err := trust.ReadFile(filepath.Join(c.Dir, formatName), mostSmall)
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

// readJob reads the facts in job.json. It returns false if the file does not exist.
func (c *Cache) readJob() bool {
	b, err := trust.ReadFile(filepath.Join(c.Dir, jobName), mostSmall)
	var j struct {
		Schema int    `json:"schema"`
		Source string `json:"source"`

		Identity string `json:"identity"`
		Listing
		Extensions struct {
			Files map[string]int64 `json:"files"`
		} `json:"extensions"`
		Memory int64           `json:"memory"`
		Job    json.RawMessage `json:"job"`
	}
	if err != nil || jsonbytes.Unmarshal(b, &j) != nil || j.Schema < 1 || j.Source == "" {
		return false
	}
	c.Source, c.Identity, c.Memory, c.Job = j.Source, j.Identity, j.Memory, j.Job
	c.Listing, c.Files = j.Listing, j.Extensions.Files
	return true
}

// mostSmall bounds the size of FORMAT and of job.json, in bytes.
const mostSmall = 16 << 20

// holder returns the process that holds a lock file, 0: none; and the time at which it will exit. For a moment it takes a shared lock itself;
// a starting server waits for that.
func holder(path string) (pid int, ends *time.Time) {
	f, err := trust.Open(path, os.O_RDONLY)
	if err != nil {
		return 0, nil
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, nil
	}
	return readHolder(f)
}

// readHolder reads the text that the holder of a lock file has written: its pid, and on a second line the time when
// it will exit (logfile/lock.go). The Python client writes a pid and a text.
func readHolder(f *os.File) (pid int, ends *time.Time) {
	var b [128]byte
	n, _ := f.ReadAt(b[:], 0)
	first, rest, _ := strings.Cut(string(b[:n]), "\n")
	digits, _, _ := strings.Cut(first, ":")
	pid, _ = strconv.Atoi(strings.TrimSpace(digits))
	if at, found := strings.CutPrefix(rest, "ends "); found {
		at, _, _ = strings.Cut(at, "\n")
		if when, err := time.Parse(time.RFC3339Nano, at); err == nil {
			ends = &when
		}
	}
	return pid, ends
}

// List describes root, if it is a cache, and the caches in root, sorted by name.
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
		c, err := look(filepath.Join(root, e.Name()), true)
		if errors.Is(err, ErrNotCache) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if untrusted := new(trust.Error); errors.As(err, &untrusted) {
			c, err = Cache{Dir: c.Dir, Parts: c.Parts, Untrusted: untrusted.Reason()}, nil
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

// Within names the caches inside a directory, for a message to a user who gave that directory by mistake; "": none. The directory itself
// does not count.
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

// folder matches the name that Folder makes.
var folder = regexp.MustCompile(`^(.*-)[0-9a-f]{8}$`)

// Siblings describes the caches in the same root as dir whose sources have the same last name. If Folder did not name dir, there are none.
func Siblings(dir string) (found []Cache) {
	root, name := filepath.Split(filepath.Clean(dir))
	of := folder.FindStringSubmatch(name)
	if of == nil {
		return nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if match := folder.FindStringSubmatch(e.Name()); match == nil || match[1] != of[1] || e.Name() == name {
			continue
		}
		if c, err := Look(filepath.Join(root, e.Name())); err == nil && c.Source != "" {
			found = append(found, c)
		}
	}
	return found
}

// foreign lists the files in dir that lcache did not make.
func foreign(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !Makes(e.Name()) || e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// ListAll lists the caches in all roots that exist, and then the caches in dirs that are in no root.
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
