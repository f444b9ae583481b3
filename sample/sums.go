package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// The sums file, little-endian; n and the fingerprint are the manifest's.
//
//	┌──────────────────────────┬──────────┬────────────┐
//	│ header, padded to 4096 B │ sum u64[n] │ check u32[n] │
//	└──────────────────────────┴──────────┴────────────┘
//
//	 0  magic        "lcachesm"
//	 8  version      u32 = 1
//	12  zero         u32
//	16  samples      u64 = n
//	24  fingerprint  16 bytes, of the manifest
//	40  sum          xxh3-64 of the 40 bytes before
//
// check = the low 32 bits of xxh3-64(sum ‖ index as u32), 1 if they are 0.
const (
	sumsMagic   = "lcachesm"
	sumsVersion = 1
	sumsHeader  = 48
	sumsData    = 4096 // the columns begin at a page, so they are aligned and a torn header page harms no entry
	sumsEntry   = 12
)

// Sums holds the xxh3-64 of each sample's bytes, once these have been read. They are learnt, so the file is written all the
// time, through a shared mapping and without a journal: the kernel may write its pages back in any order and a power cut may
// leave some old, some new, some zero and some torn, also between the two columns. So every entry proves itself: its check is a
// hash of sum and index together. A zeroed page has checks of 0, which no entry has; a sum from another moment, or at another
// index, does not match its check. All of these read as unknown, which costs a read of the source, and never as a wrong sum
// (but for a chance of 2⁻³² an entry damaged, after which a delivery of right bytes would be refused, not wrong ones delivered).
//
// The same property makes Get and Set safe to call concurrently without a lock: two atomic accesses, and a pair seen half
// written reads as unknown.
//
// A page that can't be brought into memory, because the disk fails or the file was cut short, makes its entries unknown; Broken says so.
type Sums struct {
	path   string
	mapped []byte
	broken atomic.Pointer[error]
	sums   []uint64
	checks []uint32
}

// OpenSums maps the sums of the manifest with this fingerprint and n samples; it creates the file if there is none, with its
// space reserved: a store into a mapped file for which the disk has no room kills the process. Sums of another manifest are
// [ErrOtherManifest]; a damaged header is [ErrCorrupt], and then the file may be removed, which costs time only.
func OpenSums(path string, fp Fingerprint, n int) (*Sums, error) {
	f, size, err := openRegular(path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		if err := replace(path, func(f *os.File) error { return createSums(f, fp, n) }); err != nil {
			return nil, fmt.Errorf("create sums %s: %w", path, err)
		}
		f, size, err = openRegular(path, os.O_RDWR)
	}
	if err != nil {
		return nil, fmt.Errorf("open sums: %w", err)
	}
	defer f.Close() // the mapping stays
	var head [sumsHeader]byte
	if _, err := f.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("open sums %s: %w: read header of %d bytes from %d", path, ErrCorrupt, sumsHeader, size)
	} else if err != nil {
		return nil, fmt.Errorf("open sums %s: read header: %w", path, err)
	}
	if err := checkSumsHeader(head, fp, n, size); err != nil {
		return nil, fmt.Errorf("open sums %s: %w", path, err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("open sums %s: map: %w", path, err)
	}
	return &Sums{path: path, mapped: b, sums: column[uint64](b[sumsData : sumsData+8*n]), checks: column[uint32](b[sumsData+8*n:])}, nil
}

func sumsSize(n int) int64 { return sumsData + sumsEntry*int64(n) }

func encodeSumsHeader(fp Fingerprint, n int) []byte {
	b := append(make([]byte, 0, sumsHeader), sumsMagic...)
	b = binary.LittleEndian.AppendUint64(b, sumsVersion) // and the zero behind it
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = append(b, fp[:]...)
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

func checkSumsHeader(b [sumsHeader]byte, fp Fingerprint, n int, size int64) error {
	if string(b[:8]) != sumsMagic {
		return fmt.Errorf("%w: not a sums file of lcache", ErrCorrupt)
	}
	// Checked before the version, and so at the same place in every later one: a damaged version is no other version.
	if xxh3.Hash(b[:sumsHeader-8]) != binary.LittleEndian.Uint64(b[sumsHeader-8:]) {
		return fmt.Errorf("%w: header does not match its checksum", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != sumsVersion {
		return fmt.Errorf("%w %d, this lcache reads version %d: use the lcache that wrote it, or remove the file (every sample is then read again)", ErrVersion, v, sumsVersion)
	}
	if binary.LittleEndian.Uint32(b[12:]) != 0 {
		return fmt.Errorf("%w: header has bytes that must be zero", ErrCorrupt)
	}
	if got := Fingerprint(b[24:40]); got != fp {
		return fmt.Errorf("%w: they are of %s, the manifest is %s", ErrOtherManifest, got.Short(), fp.Short())
	}
	if m := binary.LittleEndian.Uint64(b[16:]); m != uint64(n) || size != sumsSize(n) {
		return fmt.Errorf("%w: %d samples in %d bytes, want %d in %d", ErrCorrupt, m, size, n, sumsSize(n))
	}
	return nil
}

// createSums reserves all of the file, so that no later store can find the disk full.
func createSums(f *os.File, fp Fingerprint, n int) error {
	if n < 0 || uint64(n) > MaxSamples {
		return fmt.Errorf("%w: %d samples", ErrEntry, n)
	}
	err := unix.Fallocate(int(f.Fd()), 0, 0, sumsSize(n))
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = writeZeros(f, sumsSize(n)) // such file systems reserve what is written
	}
	if err != nil {
		return fmt.Errorf("reserve %d bytes (%d for each of %d samples): %w", sumsSize(n), sumsEntry, n, err)
	}
	_, err = f.WriteAt(encodeSumsHeader(fp, n), 0)
	return err
}

func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

func checkOf(sum uint64, i Index) uint32 {
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], sum)
	binary.LittleEndian.PutUint32(b[8:], i)
	return max(1, uint32(xxh3.Hash(b[:])))
}

// Get gives the sum of sample i's bytes, if it is known.
func (s *Sums) Get(i Index) (sum uint64, known bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			s.faulted(r)
			sum, known = 0, false
		}
	}()
	check := atomic.LoadUint32(&s.checks[i])
	if check == 0 {
		return 0, false
	}
	sum = atomic.LoadUint64(&s.sums[i])
	if check != checkOf(sum, i) {
		return 0, false
	}
	return sum, true
}

// Set makes the sum of sample i known. It reaches the disk some time later, or with Sync.
func (s *Sums) Set(i Index, sum uint64) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { s.faulted(recover()) }()
	atomic.StoreUint64(&s.sums[i], sum)
	atomic.StoreUint32(&s.checks[i], checkOf(sum, i))
}

// Forget makes the sum of sample i unknown.
func (s *Sums) Forget(i Index) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { s.faulted(recover()) }()
	atomic.StoreUint32(&s.checks[i], 0)
}

// faulted takes what a panic brought: a fault of the mapping is noted, anything else goes on.
func (s *Sums) faulted(r any) {
	if r == nil {
		return
	}
	fault, ok := r.(interface{ Addr() uintptr })
	base := uintptr(unsafe.Pointer(unsafe.SliceData(s.mapped)))
	if !ok || fault.Addr() < base || fault.Addr() >= base+uintptr(len(s.mapped)) {
		panic(r)
	}
	err := fmt.Errorf("sums %s: a page can't be read, its samples count as unknown: the disk fails, or the file was cut short (run lcache ingest again)", s.path)
	s.broken.CompareAndSwap(nil, &err)
}

// Broken is nil as long as every page that was touched could be read and written.
func (s *Sums) Broken() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Known counts the samples whose sum is known. It looks at every entry, 12 bytes a sample: ask at start, not once a batch.
func (s *Sums) Known() int {
	known := 0
	for i := range s.checks {
		if _, ok := s.Get(Index(i)); ok {
			known++
		}
	}
	return known
}

// Len is the number of samples.
func (s *Sums) Len() int { return len(s.checks) }

// Sync waits until all sums set before are on disk. A sync that fails must not be tried again: what it covered may be lost, and
// is unknown after a restart.
func (s *Sums) Sync() error {
	if err := unix.Msync(s.mapped, unix.MS_SYNC); err != nil {
		return fmt.Errorf("sync sums: %w", err)
	}
	return nil
}

// Close syncs and unmaps.
func (s *Sums) Close() error {
	err := s.Sync()
	if e := syscall.Munmap(s.mapped); err == nil && e != nil {
		err = fmt.Errorf("unmap sums: %w", e)
	}
	s.mapped, s.sums, s.checks = nil, nil, nil
	return err
}
