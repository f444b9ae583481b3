package staging

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"lcache/internal/disk/offheap"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// memory is the shared mapping: one memfd, sealed against resizing and against further writable mappings.
type memory struct {
	fd   int
	file *os.File // the same memfd opened read-only, for clients
	data []byte
	huge string // "hugetlb", "thp" or ""

	reserve  unsafe.Pointer // the address range that contains data
	reserved uintptr

	pages struct { // the last result of pageBytes
		sync.Mutex
		bytes int
		at    time.Time
	}
}

// pagesKept is how long pageBytes caches its result: reading smaps makes the kernel walk the page tables of the whole process.
const pagesKept = time.Second

func newMemory(size int) (*memory, error) {
	size = (size + hugePage - 1) / hugePage * hugePage
	m := &memory{fd: -1}
	if freeHugePages() >= size/hugePage {
		if err := m.open(size, unix.MFD_HUGETLB); err == nil {
			m.huge = "hugetlb"
		}
	}
	if m.data == nil {
		if err := m.open(size, 0); err != nil {
			return nil, fmt.Errorf("reserve %d bytes of shared memory: %w", size, err)
		}
		if unix.Madvise(m.data, unix.MADV_HUGEPAGE) == nil && shmemHuge() {
			m.huge = "thp"
		}
	}
	if err := m.seal(); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *memory) open(size, flags int) error {
	fd, err := unix.MemfdCreate("lcache-staging", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return fmt.Errorf("size the memfd: %w", err)
	}
	if err := m.mapAligned(fd, size); err != nil {
		unix.Close(fd)
		return fmt.Errorf("map the memfd: %w", err)
	}
	m.fd = fd
	return nil
}

// mapAligned maps the memfd at a multiple of the huge page size: the kernel uses huge page tables only there. It reserves a larger
// address range and maps the memfd at the first aligned address in it.
func (m *memory) mapAligned(fd, size int) error {
	reserve, err := unix.MmapPtr(-1, 0, nil, uintptr(size+hugePage), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	skip := -uintptr(reserve) & (hugePage - 1)
	at, err := unix.MmapPtr(fd, 0, unsafe.Add(reserve, skip), uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		unix.MunmapPtr(reserve, uintptr(size+hugePage))
		return err
	}
	m.reserve, m.reserved = reserve, uintptr(size+hugePage)
	m.data = unsafe.Slice((*byte)(at), size)
	offheap.Count(size)
	return nil
}

// seal forbids resizing, which could cause SIGBUS in clients, and every new writable mapping. The server's own mapping stays writable.
func (m *memory) seal() error {
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal the shared memory: %w", err)
	}
	file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", m.fd), os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open the shared memory read-only: %w", err)
	}
	m.file = file
	return nil
}

func (m *memory) close() {
	if m.file != nil {
		m.file.Close()
	}
	if m.data != nil {
		unix.MunmapPtr(m.reserve, m.reserved)
		offheap.Count(-len(m.data))
		m.data = nil
	}
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
}

// pageBytes returns the page size of most of the touched memory. With transparent huge pages the result is at most pagesKept old.
func (m *memory) pageBytes() int {
	if m.huge == "hugetlb" {
		return hugePage
	}
	if m.huge == "" && !shmemHuge() { // huge pages were off when the memory was mapped, and still are
		return os.Getpagesize()
	}
	m.pages.Lock()
	defer m.pages.Unlock()
	if m.pages.bytes == 0 || time.Since(m.pages.at) > pagesKept {
		m.pages.bytes, m.pages.at = mostPages(), time.Now()
	}
	return m.pages.bytes
}

// mostPages reads from smaps the page size of most of this process's staging memory.
func mostPages() int {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return os.Getpagesize()
	}
	defer f.Close()
	var inside bool
	var rss, pmd int
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := sc.Text()
		if !strings.Contains(strings.SplitN(line, " ", 2)[0], ":") { // the first line of a mapping: "from-to perms …"
			inside = strings.Contains(line, "memfd:lcache-staging")
			continue
		}
		if !inside {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kb, _ := strconv.Atoi(fields[1])
		switch fields[0] {
		case "Rss:":
			rss += kb
		case "ShmemPmdMapped:":
			pmd += kb
		}
	}
	if rss > 0 && pmd*2 >= rss {
		return hugePage
	}
	return os.Getpagesize()
}

func freeHugePages() int {
	b, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// shmemHuge reports whether the kernel gives huge pages to shared memory. Newer kernels also have a switch for this page size.
func shmemHuge() bool {
	for _, of := range []string{"", "hugepages-2048kB/"} {
		b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/" + of + "shmem_enabled")
		for _, mode := range []string{"[advise]", "[always]", "[within_size]", "[force]"} {
			if err == nil && strings.Contains(string(b), mode) {
				return true
			}
		}
	}
	return false
}
