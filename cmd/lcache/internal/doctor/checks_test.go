package doctor

import (
	"math"
	"strings"
	"testing"

	"lcache/internal/store/cachedir"
)

// fine are facts that nothing is to be done about.
func fine() *Facts {
	dev := &Device{Read: 3e9, Write: 2e9, BothRead: 1.2e9, BothWrite: 1e9, IOPS: 400_000, Random: 2.8e9, Latency: 80e-6, OpBytes: assumedOp}
	return &Facts{CPUs: 16, Ring: Ring{Engine: "io_uring"}, Locked: Locked{Limit: math.MaxUint64},
		Memory: Memory{Total: 64 << 30, Available: 32 << 30, Version: 2}, Huge: Huge{Shmem: "advise"},
		Places: []Place{{Dir: "/nvme", Seen: "/nvme", ID: 1, Kind: "ext4", Nature: cachedir.Local, Block: "nvme0n1", Size: 1e12, Free: 9e11, Reserve: 5e10, Direct: true, MemAlign: 4, OffAlign: 512, Device: dev}}}
}

// find is the check of a name.
func find(t *testing.T, f *Facts, name string) Check {
	t.Helper()
	for _, c := range f.Checks() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q", name)
	return Check{}
}

func TestFine(t *testing.T) {
	for _, c := range fine().Checks() {
		if c.State != Good || c.Do != "" || c.Found == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		what      string
		bend      func(f *Facts)
		name      string
		state     State
		found, do string // parts of
	}{
		{"ring without memory", func(f *Facts) { f.Ring = Ring{Engine: "io_uring (unregistered)", Reason: "ENOMEM"} }, "io_uring", Better, "ENOMEM", "memlock"},
		{"ring switched off", func(f *Facts) { f.Ring = Ring{Engine: "pread", Disabled: 2} }, "io_uring", Better, "io_uring_disabled=2", "sysctl"},
		{"ring refused", func(f *Facts) { f.Ring = Ring{Engine: "pread", Reason: "operation not permitted"} }, "io_uring", Better, "operation not permitted", "seccomp"},
		{"pread wanted", func(f *Facts) { f.Ring = Ring{Engine: "pread", Reason: "pread was asked for"} }, "io_uring", Good, "not tried", ""},
		{"small limit", func(f *Facts) { f.Locked.Limit = 8 << 20 }, "locked memory", Better, "at most 8.4 MB, while a server may register 17 GB", "ulimit"},
		{"enough", func(f *Facts) { f.Locked.Limit = 16 << 30 }, "locked memory", Good, "17 GB", ""},
		{"small limit for all others", func(f *Facts) { f.Locked = Locked{Limit: 8 << 20, Exempt: true} }, "locked memory", Good, "CAP_IPC_LOCK", ""},
		{"no huge pages", func(f *Facts) { f.Huge.Shmem = "never" }, "huge pages", Better, `"never"`, "echo advise"},
		{"no switch", func(f *Facts) { f.Huge.Shmem = "" }, "huge pages", Better, "4 KiB", "vm.nr_hugepages"},
		{"reserved", func(f *Facts) { f.Huge = Huge{Shmem: "never", Total: 8 << 30, Free: 4 << 30} }, "huge pages", Good, "4.3 GB", ""},
		{"a tight group", func(f *Facts) { f.Memory.Limit, f.Memory.Group = 1<<30, "/sys/fs/cgroup/x" }, "memory", Better, "/sys/fs/cgroup/x allows 1.1 GB", "--memory 512MiB"},
		{"a wide group", func(f *Facts) { f.Memory.Limit, f.Memory.Group = 16<<30, "/sys/fs/cgroup/x" }, "memory", Good, "17 GB", ""},
		{"no /proc", func(f *Facts) { f.Memory = Memory{} }, "memory", Unseen, "/proc", "mount"},
		{"network", func(f *Facts) { f.Places[0].Kind, f.Places[0].Nature = "nfs", cachedir.Network }, "file system", Bad, "nfs", "local SSD"},
		{"memory", func(f *Facts) { f.Places[0].Kind, f.Places[0].Nature = "tmpfs", cachedir.RAM }, "file system", Bad, "tmpfs", "local SSD"},
		{"container", func(f *Facts) { f.Places[0].Nature = cachedir.Layered }, "file system", Better, "layer", "docker run -v"},
		{"btrfs", func(f *Facts) { f.Places[0].Nature = cachedir.Copying }, "file system", Better, "new place", "chattr"},
		{"fuse", func(f *Facts) { f.Places[0].Nature = cachedir.User }, "file system", Better, "process", "ext4"},
		{"a new kind", func(f *Facts) { f.Places[0].Nature = cachedir.Unknown }, "file system", Unseen, "not known to lcache", "ext4"},
		{"read-only", func(f *Facts) { f.Places[0].NoWrite = "read-only file system" }, "file system", Bad, "read-only", "writable"},
		{"not there", func(f *Facts) { f.Places[0].Dir = "/nvme/new" }, "file system", Good, "/nvme/new is not there yet", ""},
		{"no O_DIRECT", func(f *Facts) { f.Places[0].Direct = false }, "O_DIRECT", Better, "refused", "ext4"},
		{"O_DIRECT untried", func(f *Facts) { f.Places[0].NoWrite = "denied" }, "O_DIRECT", Unseen, "no file", "writable"},
		{"huge sectors", func(f *Facts) { f.Places[0].OffAlign = 1 << 20 }, "O_DIRECT", Bad, "1048576", "sectors"},
		{"full", func(f *Facts) { f.Places[0].Free = 4e10 }, "free space", Bad, "may take 0 B", "make room"},
		{"unmeasured", func(f *Facts) { f.Places[0].Device, f.Places[0].NoDevice = nil, "it is memory" }, "device", Unseen, "it is memory", "SSD"},
		{"not to be measured", func(f *Facts) { f.Places[0].Device = nil }, "device", Unseen, "not measured", "--no-device"},
		{"hard disk", func(f *Facts) { f.Places[0].Device.Read = 60e6 }, "device", Better, "reads 60 MB/s", "SSD"},
		{"one limit", func(f *Facts) { f.Places[0].Device.CombinedCap = 3e9 }, "device", Good, "share one limit", ""},
		{"known operation size", func(f *Facts) { f.Places[0].Device.OpMeasured = true }, "device", Good, "up to 256 KiB cost one", ""},
		{"one device twice", func(f *Facts) { f.Places = append(f.Places, f.Places[0]); f.Places[1].Dir = "/nvme/b" }, "devices", Better, "/nvme and /nvme/b are on one device", "each device"},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := fine()
			c.bend(f)
			got := find(t, f, c.name)
			if got.State != c.state || !strings.Contains(got.Found, c.found) || !strings.Contains(got.Do, c.do) || (c.do == "") != (got.Do == "") {
				t.Errorf("got %+v; want %s, %q, %q", got, c.state, c.found, c.do)
			}
		})
	}
}

func TestBlind(t *testing.T) {
	f := fine()
	n := len(f.Blind())
	f.Memory.Version = 0
	f.Places = append(f.Places, Place{Dir: "/b", ID: 2})
	if got := f.Blind(); len(got) != n+2 {
		t.Errorf("%d things are unseen, want %d: %q", len(got), n+2, got)
	}
}

func TestAdvice(t *testing.T) {
	const GB = 1e9
	reading := func(bytes int64, now float64) *Reading {
		return &Reading{Bytes: bytes, Files: 1000, Nature: cachedir.Local, Readers: []Reader{{Readers: 1, Bytes: 1, Seconds: 1}, {Readers: 32, Bytes: int64(now), Seconds: 1}}}
	}
	for _, c := range []struct {
		what     string
		bend     func(f *Facts)
		verdict  Verdict
		expected float64
		why      string
	}{
		{"slow files", func(f *Facts) { f.Reading = reading(200*GB, 0.1*GB) }, Worth, 1 * GB, "10.0 times"},
		{"fast files", func(f *Facts) { f.Reading = reading(200*GB, 0.9*GB) }, Bother, 1 * GB, "fast enough: 32 readers get 900 MB/s now, the log would give 1 GB/s"},
		{"all in memory", func(f *Facts) { f.Reading = reading(10*GB, 0.1*GB) }, Bother, 1 * GB, "fit into memory"},
		{"all in memory, but far away", func(f *Facts) { f.Reading = reading(10*GB, 0.1*GB); f.Reading.Nature = cachedir.Network }, Worth, 1 * GB, "times"},
		{"few CPUs", func(f *Facts) {
			f.Reading = reading(200*GB, 0.01*GB)
			f.CPUs = 1
			f.Places[0].Device.BothRead, f.Places[0].Device.BothWrite = 9*GB, 9*GB
		},
			Worth, 1 / cpuReorder * GB, "times"},
		{"room for a tenth", func(f *Facts) { f.Reading = reading(8500*GB, 0.2*GB) }, Bother, 0.2 / 0.902 * GB, "room for 10 %"},
		{"no room", func(f *Facts) { f.Reading = reading(200*GB, 0.2*GB); f.Places[0].Free = 0 }, Bother, 0.2 * GB, "room for 0 %"},
		{"no device", func(f *Facts) { f.Reading = reading(200*GB, 0.2*GB); f.Places[0].Device = nil }, Unclear, 0, "not measured"},
		{"no files", func(f *Facts) {}, Unclear, 0, "no files"},
		{"nothing was read", func(f *Facts) { f.Reading = reading(200*GB, 0) }, Unclear, 0, "not measured"},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := fine()
			c.bend(f)
			a := f.Advise()
			if a.Verdict != c.verdict || math.Abs(a.Expected-c.expected) > 0.01*c.expected || !strings.Contains(a.Why, c.why) {
				t.Errorf("got %+v; want %s, %g, %q", a, c.verdict, c.expected, c.why)
			}
		})
	}
}

func TestLogRateCountsDevicesOnce(t *testing.T) {
	f := fine()
	f.Places = append(f.Places, f.Places[0], f.Places[0])
	f.Places[2].ID = 2
	if reorder, read, ok := f.LogRate(); reorder != 2e9 || read != 6e9 || !ok {
		t.Errorf("got %g %g %v, want 2e9 6e9 true", reorder, read, ok)
	}
}

func TestNeedsMemory(t *testing.T) {
	// The design's own figure: 138 GB in blocks of 1 MiB take about 1.5 GB, and misses.
	if got := float64(needsMemory(138e9)); math.Abs(got-(1.52e9+100e6)) > 50e6 {
		t.Errorf("138 GB need %g", got)
	}
}
