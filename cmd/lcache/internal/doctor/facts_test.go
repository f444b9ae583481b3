package doctor

import (
	"testing"
	"testing/fstest"

	"lcache/internal/store/cachedir"
)

// tree is a /proc and /sys made of texts.
func tree(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for path, text := range files {
		m[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestUsable(t *testing.T) {
	for _, c := range []struct {
		m    Memory
		want uint64
	}{
		{Memory{Total: 100}, 100},
		{Memory{Total: 100, Limit: 40}, 40},
		{Memory{Total: 100, Limit: 400}, 100},
	} {
		if got := c.m.Usable(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.m, got, c.want)
		}
	}
}

func TestMeminfo(t *testing.T) {
	m := lookAtMemory(tree(map[string]string{"proc/meminfo": "MemTotal:       24683732 kB\nMemFree: 1 kB\nMemAvailable:   23622656 kB\n"}))
	if m.Total != 24683732<<10 || m.Available != 23622656<<10 {
		t.Errorf("got %+v", m)
	}
}

func TestHuge(t *testing.T) {
	const need = 1 << 30
	for _, c := range []struct {
		shmem, total, free string
		want               string
	}{
		{"always within_size advise [never] deny force\n", "0\n", "0\n", "4 KiB"},
		{"always within_size [advise] never deny force\n", "0\n", "0\n", "transparent"},
		{"[always] within_size advise never deny force\n", "0\n", "0\n", "transparent"},
		{"always within_size advise never [deny] force\n", "0\n", "0\n", "4 KiB"},
		{"always within_size advise [never] deny force\n", "600\n", "512\n", "hugetlb"},
		{"always within_size advise [never] deny force\n", "600\n", "511\n", "4 KiB"},
		{"always within_size [advise] never deny force\n", "600\n", "511\n", "transparent"},
		{"", "", "", "4 KiB"},
	} {
		h := lookAtHuge(tree(map[string]string{
			"sys/kernel/mm/transparent_hugepage/shmem_enabled":        c.shmem,
			"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":   c.total,
			"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": c.free,
		}))
		if got := h.Staging(need); got != c.want {
			t.Errorf("%q, %q free: %s, want %s", c.shmem, c.free, got, c.want)
		}
	}
}

func TestCapability(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapEff:\t000001ffffffffff\n": true,
		"CapEff:\t0000000000004000\n":           true,
		"CapEff:\t0000000000003fff\n":           false,
		"CapPrm:\t000001ffffffffff\n":           false,
		"CapEff:\tnonsense\n":                   false,
		"":                                      false,
	} {
		if got := hasCapability(status, capIPCLock); got != want {
			t.Errorf("%q: %v, want %v", status, got, want)
		}
	}
}

func TestFloor(t *testing.T) {
	for _, c := range []struct{ size, free, floor, room uint64 }{
		{1 << 40, 500 << 30, 1 << 40 / 20, 500<<30 - 1<<40/20},
		{8e9, 7e9, 1e9, 6e9},
		{8e9, 9e8, 1e9, 0},
	} {
		p := Place{Size: c.size, Free: c.free, Reserve: cachedir.Reserve(c.size)}
		if p.Reserve != c.floor || p.room() != c.room {
			t.Errorf("%d free of %d: floor %d, room %d; want %d, %d", c.free, c.size, p.Reserve, p.room(), c.floor, c.room)
		}
	}
}

func TestBoundedSize(t *testing.T) {
	for free, want := range map[uint64]int64{0: 0, 19 << 20: 0, 20 << 20: 1 << 20, 10 << 30: 512 << 20, 20 << 30: 1 << 30, 1 << 50: 1 << 30} {
		if got := boundedSize(free); got != want {
			t.Errorf("%d free: %d, want %d", free, got, want)
		}
	}
}

func TestOpSize(t *testing.T) {
	for _, c := range []struct {
		name            string
		iops, bandwidth float64
		ops             [3]float64
		want            int
		measured        bool
	}{
		{"3,000 operations of up to 64 KiB", 3000, 190e6, [3]float64{3000, 3000, 750}, assumedOp, false}, // 64 KiB at 3,000 is all of the bandwidth
		{"operations of 16 KiB", 20000, 300e6, [3]float64{20000, 3500, 900}, 16 << 10, true},
		{"all sizes alike", 1000, 500e6, [3]float64{1000, 990, 950}, 256 << 10, true},
		{"bandwidth binds at once", 100_000, 500e6, [3]float64{30_000, 7_600, 1_900}, assumedOp, false},
		{"slower with size, but reading in order is far faster", 70_000, 1900e6, [3]float64{58_000, 20_000, 5_000}, assumedOp, false},
	} {
		ops := map[int]float64{}
		for i, size := range opSizes {
			ops[size] = c.ops[i]
		}
		if got, measured := opSize(c.iops, c.bandwidth, ops); got != c.want || measured != c.measured {
			t.Errorf("%s: %d %v, want %d %v", c.name, got, measured, c.want, c.measured)
		}
	}
}

func TestMixAndCap(t *testing.T) {
	for _, c := range []struct {
		read, write, bothRead, bothWrite float64
		mix, cap                         float64
	}{
		{500, 500, 500, 500, 0, 0},
		{500, 500, 250, 250, 1, 500},
		{500, 400, 375, 300, 1.0 / 3, 0},
		{1000, 100, 900, 50, 0.2, 950},
		{0, 100, 0, 50, 1, 0},
		{500, 400, 0, 400, 1, 0},
	} {
		d := Device{Read: c.read, Write: c.write, BothRead: c.bothRead, BothWrite: c.bothWrite}
		d.derive(nil)
		if diff := d.Mix - c.mix; diff > 1e-9 || diff < -1e-9 || (c.cap > 0 && d.CombinedCap != c.cap) {
			t.Errorf("%+v: mix %v, cap %v", c, d.Mix, d.CombinedCap)
		}
	}
}
