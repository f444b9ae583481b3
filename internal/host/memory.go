package host

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// MachineMemory returns the bytes of memory that this process may use: the machine's, or the limit of its control group if that is less. A process
// that reserves shared memory beyond the group's limit gets SIGKILL, not ENOMEM.
func MachineMemory() uint64 {
	var si unix.Sysinfo_t
	total := uint64(4 << 30)
	if unix.Sysinfo(&si) == nil {
		total = si.Totalram * uint64(si.Unit)
	}
	return memoryWithin(os.DirFS("/"), total)
}

// memoryWithin returns total, or the limit of the control group if that is less.
func memoryWithin(root fs.FS, total uint64) uint64 {
	if limit := LookMemory(root).Limit; limit > 0 {
		return min(total, limit)
	}
	return total
}
