package homes

// A Store is what a peer's disks have: bytes that are free for further samples, and whether they hold a sample.
type Store struct {
	Room uint64           // for samples, if the disks were empty
	Left uint64           // of Room
	Held func(i int) bool // nil: the disks are empty
}

// A Part is what a peer keeps of a dataset, in padded bytes.
type Part struct {
	Kept       uint64 // given by the threshold, and held or with room
	Missing    uint64 // given by the threshold, and neither held nor with room
	Unassigned uint64 // held, and not given by the threshold
}

// What a byte is worth when a threshold is chosen. A byte of a peer's own bins that it has saves a read of the source. A copy is worth less, because the
// sample's home should have it, too. A byte that it lacks costs the others a request in vain.
const (
	worthOwn   = 8
	worthCopy  = 1
	costAbsent = 2
)

// Believable returns the threshold that a peer should announce. On empty disks it is that of Largest. Disks that hold samples of an earlier roster have less
// room. Nearly all room may then be taken, and a threshold that gives only what fits would be close to 0, because the samples that it gives come in the
// order of their hashes. So the threshold may give samples that have no room, where most of what it gives is held: it is the one whose samples are worth
// most.
func Believable(ranks []uint16, peers int, n int, sample func(i int) Sample, disks Store) (Threshold, Part) {
	most, bytes := Largest(ranks, peers, n, sample, disks.Room)
	if disks.Held == nil && disks.Left >= disks.Room {
		return most, Part{Kept: bytes}
	}
	const bucketBits = 10 // of the fraction
	const shift = 48 - bucketBits
	type bucket struct{ held, lacks uint64 } // padded bytes below most
	buckets := make([]bucket, peers<<bucketBits)
	var all uint64 // held, whether they are given or not
	for i := range n {
		s := sample(i)
		isHeld := disks.Held != nil && disks.Held(i)
		if isHeld {
			all += s.Padded
		}
		p := place(ranks[s.Bin], s.Name)
		switch b := &buckets[min(int(p>>shift), len(buckets)-1)]; {
		case p >= most:
		case isHeld:
			b.held += s.Padded
		default:
			b.lacks += s.Padded
		}
	}
	var sum, best bucket
	var worth, bestWorth int64
	t, left := Threshold(0), disks.Left
	for i, b := range buckets {
		gets := min(left, b.lacks)
		left -= gets
		each := int64(worthOwn)
		if i>>bucketBits > 0 {
			each = worthCopy
		}
		worth += each*int64(b.held+gets) - costAbsent*int64(b.lacks-gets)
		sum.held, sum.lacks = sum.held+b.held, sum.lacks+b.lacks
		if worth >= bestWorth {
			t, best, bestWorth = Threshold(i+1)<<shift, sum, worth
		}
	}
	gets := min(disks.Left, best.lacks)
	return min(t, most), Part{Kept: best.held + gets, Missing: best.lacks - gets, Unassigned: all - best.held}
}
