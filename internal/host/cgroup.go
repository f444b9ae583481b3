package host

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Memory is the memory controller's limit. A limit holds for everything below it, so the effective limit is the least of a process's own group and of all groups above it, as far
// as this mount shows them. In a container the mount may begin at the container's own group. The zero value says that none was seen.
type Memory struct {
	Version int    // of the controller: 1 or 2; 0: none seen
	Limit   uint64 // bytes, the least that binds this process; 0: none
	Used    uint64 // bytes, of the group with the limit, caches included
	Group   string // where the limit was found
}

// controller is where the memory controller is mounted, and how its files are called.
type controller struct {
	version     int
	at          string // below the root, without a leading slash
	root        string // the group that the mount begins with
	limit, used string
}

// LookMemory finds the limit of the control groups, of version 1 or 2, in a file system like that of the machine, os.DirFS("/"). What can't be read there is no limit.
func LookMemory(root fs.FS) (m Memory) {
	own := ownGroups(readText(root, "proc/self/cgroup"))
	for _, c := range controllers(readText(root, "proc/self/mountinfo")) {
		group, ok := own[c.version]
		if !ok {
			continue
		}
		rel, inside := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(c.root, "/"))
		if !inside || strings.HasPrefix(rel, "/..") {
			rel = "/" // another namespace's name for it: what the mount begins with is all that can be seen
		}
		if m.Version == 0 && readText(root, path.Join(c.at, rel, c.used)) != "" {
			m.Version = c.version
		}
		for ; ; rel = path.Dir(rel) {
			limit, err := strconv.ParseUint(readText(root, path.Join(c.at, rel, c.limit)), 10, 64)
			if err == nil && limit < 1<<62 && (m.Limit == 0 || limit < m.Limit) { // version 1 says "no limit" by a huge number
				m.Limit, m.Version, m.Group = limit, c.version, "/"+path.Join(c.at, rel)
				m.Used, _ = strconv.ParseUint(readText(root, path.Join(c.at, rel, c.used)), 10, 64)
			}
			if rel == "/" || rel == "." || rel == "" {
				break
			}
		}
	}
	return m
}

// ownGroups gives this process's group in each version's hierarchy, from /proc/self/cgroup.
func ownGroups(text string) map[int]string {
	own := map[int]string{}
	for line := range strings.Lines(text) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(part) != 3:
		case part[0] == "0" && part[1] == "":
			own[2] = part[2]
		case slices.Contains(strings.Split(part[1], ","), "memory"):
			own[1] = part[2]
		}
	}
	return own
}

// controllers lists the mounts that can have a memory controller, from /proc/self/mountinfo.
func controllers(text string) (found []controller) {
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 1 {
			continue
		}
		c := controller{at: strings.TrimPrefix(l[4], "/"), root: l[3]}
		switch {
		case r[0] == "cgroup2":
			c.version, c.limit, c.used = 2, "memory.max", "memory.current"
		case r[0] == "cgroup" && len(r) > 2 && slices.Contains(strings.Split(r[2], ","), "memory"):
			c.version, c.limit, c.used = 1, "memory.limit_in_bytes", "memory.usage_in_bytes"
		default:
			continue
		}
		found = append(found, c)
	}
	return found
}

// readText is the text of a small file without its last newline; "" if it can't be read.
func readText(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
