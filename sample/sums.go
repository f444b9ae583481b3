package sample

import (
	"math/bits"
	"runtime/debug"
	"sync/atomic"
)

// The sums file is a learnt file, its columns sum u64[n] and check u32[n]:
// check = the low 32 bits of xxh3-64(sum ‖ index as u32), 1 if they are 0.
var sumsFile = learntFile{magic: "lcachesm", name: "sums", entry: 12}

// Sums holds the xxh3-64 of each sample's bytes, once these have been read. They are learnt, so the file is written continually,
// through a shared mapping and without a journal: the kernel may write its pages back in any order and a power cut may
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
	learntMap
	sums   []uint64
	checks []uint32
}

// IsRight reports whether bytes are a sample's: its sum is known, and theirs is the same.
func (s *Sums) IsRight(i Index, data []byte) bool {
	sum, known := s.Get(i)
	return known && Sum(data) == sum
}

// OpenSums maps the sums of the manifest with this fingerprint and n samples; it creates the file if there is none, with its
// space reserved: a store into a mapped file for which the disk has no room kills the process. Sums of another manifest are
// [ErrOtherManifest]; a damaged header is [ErrCorrupt], and then the file may be removed, which costs time only.
func OpenSums(path string, fp Fingerprint, n int) (*Sums, error) {
	m, err := sumsFile.open(path, fp, n, false)
	return newSums(m, n, err)
}

// ReadSums is OpenSums for callers that must not change the file: entries that are set or forgotten stay in memory, and a file that is not there is
// fs.ErrNotExist.
func ReadSums(path string, fp Fingerprint, n int) (*Sums, error) {
	m, err := sumsFile.open(path, fp, n, true)
	return newSums(m, n, err)
}

// BlankSums are sums in memory alone, none of them known.
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

// checkOf is the low half of xxh3-64 of sum and index, never 0. It is written out for 12 bytes because it is most of what a look-up
// costs: 8 ns instead of 17 for one in the processor's cache.
func checkOf(sum uint64, i Index) uint32 {
	const ( // of the algorithm: its secret from 24 on and from 40 on, each 8 bytes xor the next 8; and a prime
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

// Get gives the sum of sample i's bytes, if it is known.
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

// Set makes the sum of sample i known. It reaches the disk some time later, or with Sync.
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

// Forget makes the sum of sample i unknown.
func (s *Sums) Forget(i Index) {
	s.guard(func() { atomic.StoreUint32(&s.checks[i], 0) })
}

// guarded is how many entries share one guard in a pass over all. If one of them can't be read, each is read under a guard of its own.
const guarded = 1024

// Known counts the samples whose sum is known. It looks at every entry, 12 bytes a sample: ask at start, not once a batch.
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

// Len is the number of samples.
func (s *Sums) Len() int { return len(s.checks) }

// Close syncs and unmaps.
func (s *Sums) Close() error {
	err := s.close()
	s.sums, s.checks = nil, nil
	return err
}
