package sample

import (
	"math/bits"
	"runtime/debug"
	"sync/atomic"
)

// The sums file is a learnt file with the columns sum u64[n] and check u32[n]:
// check = the low 32 bits of xxh3-64(sum ‖ index as u32), 1 if they are 0.
var sumsFile = learntFile{magic: "lcachesm", name: "sums", entry: 12}

// Sums stores the xxh3-64 of each sample's bytes, after these have been read. They are learnt, so the file is written continually, through a
// shared mapping and without a journal. The kernel may write its pages back in any order, and a power cut may leave some old, some new, some
// zero and some torn, also between the two columns. So every entry is verified: its check is a hash of sum and index together. A zeroed page
// has checks of 0, which no entry has. A sum from another time, or of another index, does not match its check. All of these read as unknown,
// which costs a read of the source, and never as a wrong sum. (With probability 2⁻³², a damaged entry passes. Then right bytes
// would be refused, but wrong bytes would not be delivered.)
//
// For the same reason Get and Set may be called concurrently without a lock: they use two atomic accesses, and a half-written pair reads as
// unknown.
//
// If a page can't be read into memory, because the disk fails or the file was truncated, its entries are unknown, and Broken returns an error.
type Sums struct {
	learntMap
	sums   []uint64
	checks []uint32
}

// IsRight reports whether bytes match a sample's known checksum.
func (s *Sums) IsRight(i Index, data []byte) bool {
	sum, known := s.Get(i)
	return known && Sum(data) == sum
}

// OpenSums maps the checksums of the manifest with this fingerprint and n samples. It creates a missing file, and reserves its
// space, because a store into a mapped file without disk space kills the process. For checksums of another manifest the error is
// [ErrOtherManifest]. For a damaged header it is [ErrCorrupt]; the file may then be removed, which costs only time.
func OpenSums(path string, fp Fingerprint, n int) (*Sums, error) {
	m, err := sumsFile.open(path, fp, n, false)
	return newSums(m, n, err)
}

// ReadSums is OpenSums for callers that must not change the file: changed entries stay in memory, and a missing file is the error
// fs.ErrNotExist.
func ReadSums(path string, fp Fingerprint, n int) (*Sums, error) {
	m, err := sumsFile.open(path, fp, n, true)
	return newSums(m, n, err)
}

// BlankSums returns checksums in memory only, all unknown.
func BlankSums(n int) (*Sums, error) {
	m, err := sumsFile.blank(n)
	return newSums(m, n, err)
}

func newSums(m learntMap, n int, err error) (*Sums, error) {
	if err != nil {
		return nil, err
	}
	b := m.mapped[learntData:]
	return &Sums{learntMap: m, sums: column[uint64](b[:8*n]), checks: column[uint32](b[8*n:])}, nil
}

// checkOf returns the low half of xxh3-64 of sum and index, never 0. It is written out for 12 bytes because it takes most of the time of a
// look-up: 8 ns instead of 17 for an entry in the processor's cache.
func checkOf(sum uint64, i Index) uint32 {
	const ( // from the algorithm: its secret at 24 and at 40, each 8 bytes xor the next 8; and a prime
		secret24 = 0x6782737bea4239b9
		secret40 = 0xaf56bc3b0996523a
		prime    = 0x165667919e3779f9
	)
	low := sum ^ secret24
	high := (sum>>32 | uint64(i)<<32) ^ secret40
	h, l := bits.Mul64(low, high)
	h = 12 + bits.ReverseBytes64(low) + high + (h ^ l)
	h = (h ^ h>>37) * prime
	return max(1, uint32(h^h>>32))
}

// Get returns the checksum of sample i's bytes, if it is known.
func (s *Sums) Get(i Index) (sum uint64, known bool) {
	old, whole := debug.SetPanicOnFault(true), false
	defer func() { // as guard, without the call
		debug.SetPanicOnFault(old)
		if !whole {
			s.faulted(recover())
			sum, known = 0, false
		}
	}()
	sum, known = s.get(i)
	whole = true
	return sum, known
}

// get is Get for callers within guard.
func (s *Sums) get(i Index) (sum uint64, known bool) {
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

// Set records the sum of sample i. The sum reaches the disk some time later, or with Sync.
func (s *Sums) Set(i Index, sum uint64) {
	old, whole := debug.SetPanicOnFault(true), false
	defer func() {
		debug.SetPanicOnFault(old)
		if !whole {
			s.faulted(recover())
		}
	}()
	s.set(i, sum)
	whole = true
}

// set is Set for callers within guard.
func (s *Sums) set(i Index, sum uint64) {
	atomic.StoreUint64(&s.sums[i], sum)
	atomic.StoreUint32(&s.checks[i], checkOf(sum, i))
}

// Forget clears the sum of sample i: it is unknown then.
func (s *Sums) Forget(i Index) {
	s.guard(func() { atomic.StoreUint32(&s.checks[i], 0) })
}

// guarded is the number of entries under one guard in a scan of all entries. If one of them can't be read, each is read under its own guard.
const guarded = 1024

// Known counts the samples with a known checksum. It reads every entry, 12 bytes a sample: call it at start, not for each batch.
func (s *Sums) Known() int {
	known := 0
	for from := 0; from < s.Len(); from += guarded {
		to, here := min(from+guarded, s.Len()), 0
		if !s.guard(func() { here = count(s.get, from, to) }) {
			here = count(s.Get, from, to)
		}
		known += here
	}
	return known
}

func count(get func(Index) (uint64, bool), from, to int) (known int) {
	for i := from; i < to; i++ {
		if _, ok := get(Index(i)); ok {
			known++
		}
	}
	return known
}

// Len returns the number of samples.
func (s *Sums) Len() int { return len(s.checks) }

// Close syncs and unmaps.
func (s *Sums) Close() error {
	err := s.close()
	s.sums, s.checks = nil, nil
	return err
}
