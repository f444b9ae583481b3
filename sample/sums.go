package sample

import (
	"encoding/binary"
	"runtime/debug"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// The sums file is a learnt file, its columns sum u64[n] and check u32[n]:
// check = the low 32 bits of xxh3-64(sum ‖ index as u32), 1 if they are 0.
var sumsFile = learntFile{magic: "lcachesm", name: "sums", entry: 12}

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
	learntMap
	sums   []uint64
	checks []uint32
}

// OpenSums maps the sums of the manifest with this fingerprint and n samples; it creates the file if there is none, with its
// space reserved: a store into a mapped file for which the disk has no room kills the process. Sums of another manifest are
// [ErrOtherManifest]; a damaged header is [ErrCorrupt], and then the file may be removed, which costs time only.
func OpenSums(path string, fp Fingerprint, n int) (*Sums, error) {
	m, err := sumsFile.open(path, fp, n)
	if err != nil {
		return nil, err
	}
	b := m.mapped[learntData:]
	return &Sums{learntMap: m, sums: column[uint64](b[:8*n]), checks: column[uint32](b[8*n:])}, nil
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
	s.guard(func() {
		atomic.StoreUint64(&s.sums[i], sum)
		atomic.StoreUint32(&s.checks[i], checkOf(sum, i))
	})
}

// Forget makes the sum of sample i unknown.
func (s *Sums) Forget(i Index) {
	s.guard(func() { atomic.StoreUint32(&s.checks[i], 0) })
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

// Close syncs and unmaps.
func (s *Sums) Close() error {
	err := s.close()
	s.sums, s.checks = nil, nil
	return err
}
