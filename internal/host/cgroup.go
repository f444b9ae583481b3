package host

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Memory is the limit of the memory controller. A limit applies to all groups below it. So the effective limit is the
// smallest one among the process's own group and all groups above it, as far as this mount shows them. In a container
// the mount may start at the container's own group. The zero value means that no limit was found.
type Memory struct {
	Version int    // of the controller: 1 or 2; 0: none found
	Limit   uint64 // bytes, the smallest that applies to this process; 0: none
	Used    uint64 // bytes, of the group with the limit, including caches
	Group   string // the group that has the limit
}

// controller is the mount of a memory controller, with the names of its files.
type controller struct {
	version     int
	at          string // below the root, without a leading slash
	root        string // the group at the start of the mount
	limit, used string
}

// LookMemory finds the limit of the control groups, version 1 or 2, in a file system like the machine's,
// os.DirFS("/"). A file that can't be read counts as no limit.
func LookMemory(root fs.FS) (m Memory) {
	own := ownGroups(readText(root, "proc/self/cgroup"))
	for _, c := range controllers(readText(root, "proc/self/mountinfo")) {
		group, ok := own[c.version]
		if !ok {
			continue
		}
		rel, inside := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(c.root, "/"))
		if !inside || strings.HasPrefix(rel, "/..") {
			rel = "/" // the name is from another namespace: only the start of the mount is visible
		}
		if m.Version == 0 && readText(root, path.Join(c.at, rel, c.used)) != "" {
			m.Version = c.version
		}
		for ; ; rel = path.Dir(rel) {
			limit, err := strconv.ParseUint(readText(root, path.Join(c.at, rel, c.limit)), 10, 64)
			if err == nil && limit < 1<<62 && (m.Limit == 0 || limit < m.Limit) { // version 1 writes a huge number for "no limit"
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

// ownGroups returns this process's group in each version's hierarchy, from /proc/self/cgroup.
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

// controllers lists the mounts that may have a memory controller, from /proc/self/mountinfo.
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

// readText returns the text of a small file without its last newline, or "" if it can't be read.
func readText(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
