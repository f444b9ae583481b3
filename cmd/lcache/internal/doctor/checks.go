package doctor

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"lcache/internal/store/cachedir"
)

// State says how good a finding is.
type State string

// The states of a finding.
const (
	Good   State = "good"
	Better State = "better" // it works, and could work better
	Bad    State = "bad"    // a cache can't be there, or would not be worth it
	Unseen State = "unseen" // it could not be looked at
)

// A Check is one finding. Unless it is good, Do says how to improve it.
type Check struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

// leastMemory is the least memory with which a server is of use: some segments, and memory for misses.
const leastMemory = 512 << 20

// Checks compares the facts with the needs of lcache.
func (f *Facts) Checks() []Check {
	checks := []Check{f.checkRing(), f.checkLocked(), f.checkHuge(), f.checkMemory()}
	for i := range f.Places {
		p := &f.Places[i]
		where := ""
		if len(f.Places) > 1 {
			where = " " + p.Dir
		}
		for _, c := range []Check{p.checkKind(), p.checkDirect(), p.checkSpace(), p.checkDevice()} {
			c.Name += where
			checks = append(checks, c)
		}
	}
	return append(checks, f.checkTwins()...)
}

func (f *Facts) checkRing() Check {
	c := Check{Name: "io_uring", State: Good, Found: "works, with registered memory"}
	switch {
	case f.Ring.Engine == "io_uring":
	case strings.HasPrefix(f.Ring.Engine, "io_uring"):
		c.State, c.Found = Better, "works, but memory can't be registered: "+f.Ring.Reason
		c.Do = "raise the limit of locked memory: ulimit -l unlimited, LimitMEMLOCK=infinity, docker run --ulimit memlock=-1"
	case f.Ring.Disabled > 0:
		c.State, c.Found = Better, fmt.Sprintf("switched off by the kernel's setting io_uring_disabled=%d; pread is used, which costs more CPU", f.Ring.Disabled)
		c.Do = "as root: sysctl kernel.io_uring_disabled=0"
	case f.Ring.Engine == "pread" && strings.Contains(f.Ring.Reason, "was asked for"):
		c.Found = "not tried: pread was asked for"
	default:
		c.State, c.Found = Better, "not available ("+f.Ring.Reason+"); pread is used, which costs more CPU"
		c.Do = "in a container: allow the three io_uring system calls (docker run --security-opt seccomp=PROFILE); else Linux 5.6 or newer is needed"
	}
	return c
}

func (f *Facts) checkLocked() Check {
	c := Check{Name: "locked memory", State: Good, Found: "no limit"}
	want := f.Memory.Usable() / 4
	switch {
	case f.Locked.Exempt:
		c.Found = "no limit for this process (CAP_IPC_LOCK)"
	case f.Locked.Limit == math.MaxUint64:
	case f.Locked.Limit >= want:
		c.Found = "up to " + size(f.Locked.Limit)
	default:
		c.State, c.Found = Better, fmt.Sprintf("at most %s, while a server may register %s", size(f.Locked.Limit), size(want))
		c.Do = "ulimit -l unlimited; for a service LimitMEMLOCK=infinity; docker run --ulimit memlock=-1"
	}
	return c
}

func (f *Facts) checkHuge() Check {
	c := Check{Name: "huge pages", State: Good}
	switch f.Huge.Staging(leastMemory) {
	case "hugetlb":
		c.Found = fmt.Sprintf("staging gets reserved ones, if it needs no more than the %s that are free", size(f.Huge.Free))
		if !f.Huge.Transparent() {
			c.Found += "; else pages of 4 KiB"
		}
	case "transparent":
		c.Found = fmt.Sprintf("staging gets transparent ones (shmem_enabled is %q)", f.Huge.Shmem)
	default:
		c.State, c.Found = Better, fmt.Sprintf("staging gets pages of 4 KiB: slower by a third or more, at more CPU (shmem_enabled is %q, %s reserved)", f.Huge.Shmem, size(f.Huge.Free))
		c.Do = "as root, on the host: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled; or reserve some: sysctl vm.nr_hugepages=N, of 2 MiB each"
		if f.Huge.Shmem == "" {
			c.Do = "as root, on the host: sysctl vm.nr_hugepages=N, of 2 MiB each; this kernel has no transparent ones for shared memory"
		}
	}
	return c
}

func (f *Facts) checkMemory() Check {
	c := Check{Name: "memory", State: Good}
	usable := f.Memory.Usable()
	c.Found = size(f.Memory.Total)
	if f.Memory.Limit > 0 && f.Memory.Limit < f.Memory.Total {
		c.Found += fmt.Sprintf("; %s allows %s (%s in use)", f.Memory.Group, size(f.Memory.Limit), size(f.Memory.Used))
	} else {
		c.Found += ", no control group limits it"
		if f.Memory.Version == 0 {
			c.Found += " that can be seen from here"
		}
	}
	c.Found += fmt.Sprintf("; a server takes at most %s unless told otherwise", size(usable/4))
	switch {
	case f.Memory.Total == 0:
		c.State, c.Found, c.Do = Unseen, "/proc/meminfo can't be read", "mount /proc"
	case usable/4 < leastMemory:
		c.State, c.Do = Better, fmt.Sprintf("give the group more, or say --memory %s", strings.ReplaceAll(humanize.IBytes(leastMemory), " ", ""))
	}
	return c
}

func (p *Place) checkKind() Check {
	c := Check{Name: "file system", State: Good, Found: p.Kind}
	if p.Block != "" {
		c.Found += " on " + p.Block
	}
	if p.Seen != p.Dir {
		c.Found += fmt.Sprintf(" (%s is not there yet)", p.Dir)
	}
	const elsewhere = "give a directory on a local SSD"
	switch {
	case p.NoWrite != "":
		c.State, c.Found, c.Do = Bad, c.Found+": "+p.NoWrite, "make it writable for this user, or give another --cache"
	case p.Nature == cachedir.Network:
		c.State, c.Found, c.Do = Bad, c.Found+": over a network", elsewhere
	case p.Nature == cachedir.RAM:
		c.State, c.Found, c.Do = Bad, c.Found+": memory, not a disk", elsewhere
	case p.Nature == cachedir.Layered:
		c.State, c.Found, c.Do = Better, c.Found+": the container's own layer, lost with it", "mount a folder of the host's SSD: docker run -v /nvme/lcache:/cache"
	case p.Nature == cachedir.Copying:
		c.State, c.Found, c.Do = Better, c.Found+": writes every block to a new place, which a log that is rewritten every epoch wears out", "use ext4 or xfs; on btrfs: chattr +C on the empty directory"
	case p.Nature == cachedir.User:
		c.State, c.Found, c.Do = Better, c.Found+": every transfer goes through another process", "use ext4 or xfs on a local SSD"
	case p.Nature == cachedir.Unknown:
		c.State, c.Found, c.Do = Unseen, c.Found+": not known to lcache", "see below whether it has O_DIRECT and is fast; ext4 and xfs are known to be"
	}
	return c
}

func (p *Place) checkDirect() Check {
	c := Check{Name: "O_DIRECT", State: Good}
	switch {
	case p.NoWrite != "":
		c.State, c.Found, c.Do = Unseen, "no file could be made to try it", "make the directory writable"
	case p.Direct:
		c.Found = fmt.Sprintf("works; memory aligned to %d, offsets to %d", p.MemAlign, p.OffAlign)
		if p.OffAlign > 64<<10 {
			c.State, c.Do = Bad, "use a device with sectors of at most 64 KiB"
		}
	default:
		c.State, c.Found, c.Do = Better, "refused: the page cache takes memory and CPU for nothing", "use ext4 or xfs on a local SSD"
	}
	return c
}

func (p *Place) checkSpace() Check {
	c := Check{Name: "free space", State: Good}
	c.Found = fmt.Sprintf("%s of %s; %s stay free, so a cache may take %s", size(p.Free), size(p.Size), size(p.Reserve), size(p.room()))
	if p.room() == 0 {
		c.State, c.Do = Bad, "make room, or give another --cache"
	}
	return c
}

// room returns the bytes that a cache may take by default.
func (p *Place) room() uint64 { return p.Free - min(p.Free, p.Reserve) }

// slowRead is a rate below that of any SSD, in bytes a second.
const slowRead = 100e6

func (p *Place) checkDevice() Check {
	d := p.Device
	if d == nil {
		c := Check{Name: "device", State: Unseen, Found: "not measured: " + p.NoDevice, Do: "give a directory on a local SSD with O_DIRECT and some free space"}
		if p.NoDevice == "" {
			c.Found, c.Do = "not measured", "run lcache doctor without --no-device"
		}
		return c
	}
	c := Check{Name: "device", State: Good}
	c.Found = fmt.Sprintf("reads %s, writes %s, both at once %s + %s; at random %s reads/s of 4 KiB, %s at 100 KiB; one read %s",
		speed(d.Read), speed(d.Write), speed(d.BothRead), speed(d.BothWrite), humanize.Comma(int64(d.IOPS)), speed(d.Random), short(d.Latency))
	if d.OpMeasured {
		c.Found += fmt.Sprintf("; reads up to %s cost one operation", humanize.IBytes(uint64(d.OpBytes)))
	}
	if d.CombinedCap > 0 {
		c.Found += "; reading and writing share one limit"
	}
	if d.CombinedOps > 0 {
		c.Found += fmt.Sprintf("; reads and writes share one limit of %s operations/s", humanize.Comma(int64(d.CombinedOps)))
	}
	if d.Read < slowRead {
		c.State, c.Do = Better, "a cache wants an SSD that reads more than "+speed(slowRead)
	}
	return c
}

// checkTwins finds directories that share a device: striping over them is not faster.
func (f *Facts) checkTwins() (checks []Check) {
	first := map[uint64]string{}
	for _, p := range f.Places {
		if other, ok := first[p.ID]; ok && p.ID != 0 {
			checks = append(checks, Check{Name: "devices", State: Better, Found: fmt.Sprintf("%s and %s are on one device", other, p.Dir),
				Do: "give one directory for each device"})
			continue
		}
		first[p.ID] = p.Dir
	}
	return checks
}

// Blind names the facts that a measurement of a few seconds can't show.
func (f *Facts) Blind() []string {
	blind := []string{
		"burst credits, a controller's or host's cache, thermal limits: seconds of measuring may show more than an hour of training gets",
		"other programs that used the devices in these seconds",
	}
	if f.Memory.Version == 0 {
		blind = append(blind, "limits of control groups above this container")
	}
	if len(f.Places) > 1 {
		blind = append(blind, "whether devices share a controller: each was measured alone")
	}
	return blind
}

func size(n uint64) string { return strings.Replace(humanize.Bytes(n), ".0 ", " ", 1) }

func speed(bytesPerSecond float64) string {
	return size(uint64(math.Round(max(bytesPerSecond, 0)))) + "/s"
}

// short writes a latency: "85 µs", "0.4 ms", "12 ms".
func short(seconds float64) string {
	switch {
	case seconds < 100e-6:
		return fmt.Sprintf("%.0f µs", seconds*1e6)
	case seconds < 10e-3:
		return fmt.Sprintf("%.1f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.0f ms", seconds*1e3)
}
