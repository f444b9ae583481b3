package host

import (
	"testing"
	"testing/fstest"
)

// TestMemoryWithinItsControlGroup: the limit of this process's own control group counts, in both versions, not only a
// limit at the root of the hierarchy.
func TestMemoryWithinItsControlGroup(t *testing.T) {
	const machine = 64 << 30
	for _, c := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"none", nil, machine},
		{"version 2, its own", map[string]string{"proc/self/cgroup": "0::/user.slice/job\n",
			"proc/self/mountinfo":                     "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/user.slice/job/memory.max": "8589934592\n",
			"sys/fs/cgroup/user.slice/memory.max":     "max\n"}, 8 << 30},
		{"version 1, its own", map[string]string{"proc/self/cgroup": "4:memory:/slurm/job_7\n",
			"proc/self/mountinfo":                                    "40 23 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":             "9223372036854771712\n",
			"sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "4294967296\n"}, 4 << 30},
		{"wider than the machine", map[string]string{"proc/self/cgroup": "0::/\n",
			"proc/self/mountinfo":      "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory.max": "1099511627776\n"}, machine},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := memoryWithin(root, machine); got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
}
