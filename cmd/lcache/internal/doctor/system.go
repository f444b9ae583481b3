package doctor

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/host"
)

// Ring says whether io_uring works here.
type Ring struct {
	Engine   string `json:"engine"`             // that a server would use: "io_uring", "io_uring (unregistered)" or "pread"
	Reason   string `json:"reason"`             // for the choice of this engine
	Disabled int    `json:"disabled,omitempty"` // the kernel's switch io_uring_disabled: 0 on, 1 for some users, 2 off
}

// trialBytes is the memory that is registered on trial: more than the usual small limit of locked memory.
const trialBytes = 64 << 20

func lookAtRing(root fs.FS, o Options) (r Ring) {
	r.Disabled, _ = strconv.Atoi(readText(root, "proc/sys/kernel/io_uring_disabled"))
	io, err := blockio.Open(blockio.Options{Engine: o.Engine, Logger: o.Logger})
	if err != nil {
		return Ring{Engine: "none", Reason: err.Error(), Disabled: r.Disabled}
	}
	defer io.Close()
	if mem, err := blockio.Alloc(trialBytes); err == nil {
		defer blockio.Free(mem)
		if err := io.Register(mem); err == nil {
			defer io.Unregister(mem) // before the memory is freed
		}
	}
	r.Engine, r.Reason = io.Name(), io.Reason()
	return r
}

// Locked says how much memory this process may lock. Memory that is registered with io_uring counts as locked.
type Locked struct {
	Limit  uint64 `json:"limit_bytes"` // all ones: no limit
	Exempt bool   `json:"exempt"`      // the limit does not hold for this process (CAP_IPC_LOCK)
}

const capIPCLock = 14

func lookAtLocked(root fs.FS) (l Locked) {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) == nil {
		l.Limit = lim.Cur
	}
	l.Exempt = hasCapability(readText(root, "proc/self/status"), capIPCLock)
	return l
}

// hasCapability reports whether a bit is in the effective set of /proc/self/status.
func hasCapability(status string, bit uint) bool {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set>>bit&1 == 1
		}
	}
	return false
}

// Memory says how much memory this process may use.
type Memory struct {
	Total     uint64 `json:"total_bytes"`
	Available uint64 `json:"available_bytes"`
	Limit     uint64 `json:"cgroup_limit_bytes"` // the least of its control groups; 0: none
	Used      uint64 `json:"cgroup_used_bytes"`  // of the group with the limit
	Group     string `json:"cgroup,omitempty"`   // the group with the limit
	Version   int    `json:"cgroup_version"`     // of the memory controller: 1 or 2; 0: none seen
}

// Usable returns the machine's memory, or the limit of a control group if that is less.
func (m Memory) Usable() uint64 {
	if m.Limit > 0 {
		return min(m.Total, m.Limit)
	}
	return m.Total
}

func lookAtMemory(root fs.FS) Memory {
	g := host.LookMemory(root)
	m := Memory{Limit: g.Limit, Used: g.Used, Group: g.Group, Version: g.Version}
	for line := range strings.Lines(readText(root, "proc/meminfo")) {
		var kb uint64
		switch {
		case scan(line, "MemTotal: %d kB", &kb):
			m.Total = kb << 10
		case scan(line, "MemAvailable: %d kB", &kb):
			m.Available = kb << 10
		}
	}
	return m
}

func scan(line, format string, to ...any) bool {
	n, err := fmt.Sscanf(line, format, to...)
	return err == nil && n == len(to)
}

// Huge says which huge pages shared memory can get.
type Huge struct {
	Shmem string `json:"shmem_enabled"` // the word chosen in the kernel's switch; "" if it has none
	Total uint64 `json:"hugetlb_total_bytes"`
	Free  uint64 `json:"hugetlb_free_bytes"` // reserved and not in use
}

const hugePage = 2 << 20

func lookAtHuge(root fs.FS) (h Huge) {
	h.Shmem = chosen(readText(root, "sys/kernel/mm/transparent_hugepage/shmem_enabled"))
	const pool = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	total, _ := strconv.ParseUint(readText(root, pool+"nr_hugepages"), 10, 64)
	free, _ := strconv.ParseUint(readText(root, pool+"free_hugepages"), 10, 64)
	h.Total, h.Free = total*hugePage, free*hugePage
	return h
}

// chosen returns the word in brackets of a switch like "always [advise] never".
func chosen(text string) string {
	_, rest, ok := strings.Cut(text, "[")
	word, _, ok2 := strings.Cut(rest, "]")
	if !ok || !ok2 {
		return ""
	}
	return word
}

// Transparent reports whether shared memory can get huge pages that were not reserved.
func (h Huge) Transparent() bool {
	switch h.Shmem {
	case "advise", "always", "within_size", "force":
		return true
	}
	return false
}

// Staging returns the pages that shared memory of some size would get: "hugetlb", "transparent" or "4 KiB".
func (h Huge) Staging(size uint64) string {
	switch {
	case h.Free >= size && h.Free > 0:
		return "hugetlb"
	case h.Transparent():
		return "transparent"
	}
	return "4 KiB"
}
