package host

import (
	"testing"
	"testing/fstest"
)

const (
	mountV2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1     = "40 23 0:33 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
	mountCPU    = "41 23 0:34 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	mountDocker = "40 23 0:33 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	unlimitedV1 = "9223372036854771712\n"
)

func TestControlGroups(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Memory
	}{
		{"nothing to be seen", nil, Memory{}},
		{"version 2, no limit", map[string]string{"proc/self/cgroup": "0::/user.slice\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/user.slice/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.current": "5\n"}, Memory{Version: 2}},
		{"version 2, its own limit", map[string]string{"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/b/memory.current": "7\n"},
			Memory{Version: 2, Limit: 1000, Used: 7, Group: "/sys/fs/cgroup/a/b"}},
		{"version 2, a limit above it that is less", map[string]string{"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "600\n", "sys/fs/cgroup/a/memory.current": "9\n"},
			Memory{Version: 2, Limit: 600, Used: 9, Group: "/sys/fs/cgroup/a"}},
		{"version 2 in a container that sees itself as the root", map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/memory.max": "500\n"}, Memory{Version: 2, Limit: 500, Group: "/sys/fs/cgroup"}},
		{"version 2, a name of another namespace", map[string]string{"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/memory.max": "500\n"}, Memory{Version: 2, Limit: 500, Group: "/sys/fs/cgroup"}},
		{"version 1, no limit", map[string]string{"proc/self/cgroup": "4:memory:/x\n1:cpu:/\n", "proc/self/mountinfo": mountCPU + mountV1,
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": unlimitedV1, "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "3\n"}, Memory{Version: 1}},
		{"version 1, its own limit", map[string]string{"proc/self/cgroup": "4:cpu,memory:/x/y\n0::/\n", "proc/self/mountinfo": mountV1,
			"sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": "800\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": unlimitedV1},
			Memory{Version: 1, Limit: 800, Group: "/sys/fs/cgroup/memory/x/y"}},
		{"version 1, the mount begins with the container", map[string]string{"proc/self/cgroup": "4:memory:/docker/abc\n", "proc/self/mountinfo": mountDocker,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "700\n"}, Memory{Version: 1, Limit: 700, Group: "/sys/fs/cgroup/memory"}},
		{"both, version 1 has memory", map[string]string{"proc/self/cgroup": "4:memory:/x\n0::/x\n", "proc/self/mountinfo": mountV2 + mountV1,
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "800\n", "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "1\n"},
			Memory{Version: 1, Limit: 800, Used: 1, Group: "/sys/fs/cgroup/memory/x"}},
		{"torn lines", map[string]string{"proc/self/cgroup": "memory\n::\n", "proc/self/mountinfo": "1 2 - cgroup2\n- -\n"}, Memory{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for path, text := range c.files {
				files[path] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := LookMemory(files); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
