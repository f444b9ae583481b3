package chunker

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// Facts are the inputs of Size, in bytes unless said.
type Facts struct {
	Kept          uint64 // padded bytes that the log is to hold when all of the dataset is admitted
	Packed        bool   // the cache compresses: samples are unpacked from scratch memory
	Stored        uint64 // with Packed: bytes of Kept on disk
	Samples       int    // of the manifest
	TableBytes    uint64 // what tables and orders take a sample; 0: the MetaIndex of the design
	Largest       uint64 // the largest sample, padded
	LargestKept   uint64 // the largest that the log may hold; 0: Largest
	LargestPacked uint64 // with Packed: the largest that is not stored as it is; 0: Largest
	Batch         uint64 // the largest chunk, roughly: batch size × mean size; less than Largest where a few samples are much larger than the others
	BatchSamples  int    // samples of a chunk
	Ranks         int    // attached here
	Devices       int
	Metadata      uint64 // manifest, sums and journals on disk: part of the budget
	Budget        uint64 // 0: the need of the dataset
	Memory        uint64 // limit; 0: the need, at most MemoryCap
	MemoryCap     uint64 // for the default: a quarter of the machine's memory
	Block         uint64 // fixed by FORMAT, or 0 to choose
	SourceRate    uint64 // bytes a second, 0: unknown
	Segment       uint64 // at least this: a Logfile that was laid out before; 0: free
	Packages      uint64 // memory of the cache's packages; 0: it has none
	Static        bool   // samples stay where they are: the ring has the slots' memory
}

// Sizing is the result of Size: every term of the memory and space formulas.
type Sizing struct {
	Block    uint64 // W
	Segment  uint64 // s: capacity of a segment, whole blocks
	Slot     uint64 // a segment, and one block that a restart may waste
	Segments int    // K, about
	Slots    int    // n
	Lent     bool   // the ring has the slots' memory, until samples are read in order
	Buffers  int    // write buffers of one Logfile: K and those in flight
	Miss     uint64 // the ring, without what slots lend it
	Side     uint64
	Spare    uint64 // for requests that leases leave no room for in Side: the largest sample, at least
	Scratch  uint64 // for blocks of stored bytes on their way into a slot; 0 without compression
	Request  uint64 // a larger request is refused. What Side can't hold of a smaller one is lent piece by piece
	Credit   uint64 // L: bytes that clients may hold at once
	Memory   uint64 // M, all of it
	Slack    uint64 // arena beyond the samples themselves
	Arena    uint64 // bytes on disk for blocks
	Room     uint64 // bytes of the arena for samples: the bound of admission
	Budget   uint64
}

// InFlight is how many bytes of large reads one device is given at a time. More would keep the small reads of others waiting, and bring nothing.
const InFlight = 16 << 20

const (
	maxBlock   = 1 << 20
	usualBlock = 256 << 10 // smaller blocks make reads that a volume limited in operations feels
	minBlock   = 128 << 10
	tinyBlock  = 64 << 10 // only where slack in larger blocks would take much of the budget
	bigSide    = 64 << 20
	leastSpare = 1 << 20  // so that small samples are lent many at once
	bytesEach  = 28.5     // MetaIndex of the design, a sample
	behindHuge = 16 << 20 // room in a segment behind a huge sample
	page       = 4 << 10  // parts of the shared memory are whole pages
)

// Size chooses block, segment and slots so that memory and space stay within their limits, or says which number is needed.
func Size(f Facts) (Sizing, error) {
	w := f.Block
	if w == 0 {
		w = chooseBlock(f)
	}
	limit := f.Memory
	if limit == 0 {
		limit = f.MemoryCap
	}
	for {
		z, err := f.at(w)
		if err != nil {
			return z, err
		}
		if f.Block == 0 && w > usualBlock && z.Memory > f.roof(0, z.Memory) {
			w /= 2
			continue
		}
		if limit == 0 || z.Memory <= limit {
			f.credit(&z, f.roof(z.Memory, limit))
			f.third(&z)
			if huge := pages(f.huge() + page); f.huge() > 0 && z.Memory+huge <= f.Memory { // clients that take no loans can have it by index, too
				z.Side, z.Memory = z.Side+huge, z.Memory+huge
			}
			return z, nil
		}
		if f.Block != 0 || w/2 < minBlock {
			return z, fmt.Errorf("memory of %s is too small for this dataset: %s are needed (segments of %s, %d of them); give --memory %s or more",
				humanize.IBytes(limit), humanize.IBytes(z.Memory), humanize.IBytes(z.Segment), z.Segments, roundUp(z.Memory))
		}
		w /= 2
	}
}

// chooseBlock halves the block while 32 of them, the least slack, are more than 1 % of the budget: down to 256 KiB; and to 128 KiB where they would be more
// than a quarter of it, or where they keep out samples, more than 2 % of a budget that has no room for all of them. What a volume limited in operations loses
// by smaller reads is less than what such a little cache loses by misses. A budget of which even 32 blocks of 128 KiB are more than 5 % has blocks of 64 KiB.
func chooseBlock(f Facts) uint64 {
	d := f.Budget
	if d == 0 {
		d = f.stored()
	}
	w := uint64(maxBlock)
	for 32*w > d/100 && w > usualBlock {
		w /= 2
	}
	all := f.stored() + f.leastSlack(w) + f.Metadata
	if f.Budget != 0 && (32*w > d/4 || f.Budget < all && 32*w > d/50) {
		w = f.LeastBlock()
	}
	return w
}

// LeastBlock returns the smallest block that a new cache of these facts may have.
func (f Facts) LeastBlock() uint64 {
	if f.Budget != 0 && f.Budget < f.stored() && 32*minBlock > f.Budget/20 {
		return tinyBlock
	}
	return minBlock
}

// at computes M for a block size with the least that clients need: one batch a rank.
func (f Facts) at(w uint64) (Sizing, error) {
	kept := f.Kept
	if f.Budget > 0 && f.Budget < f.stored() {
		kept = f.Plain(f.Budget)
	}
	up := func(n uint64) uint64 { return (n + w - 1) / w * w }
	// Behind a huge sample its segment has room for the rest of its chunk, so that the chunk lies in two segments and not in three.
	largest := f.largestKept()
	least := largest
	if largest > f.Batch {
		least = largest + min(f.Batch, behindHuge)
	}
	s := up(uint64(math.Max(math.Sqrt(float64(kept)*float64(w)), float64(least))))
	if s == 0 {
		s = w
	}
	if f.Segment > s {
		s = f.Segment
	}
	z := Sizing{Block: w, Segment: s, Slot: s + w, Lent: f.Static, Credit: uint64(f.Ranks) * f.Batch}
	// A cut comes before the first sample that does not fit, which costs nothing where samples are small compared with a segment, and up to
	// half of it where they are not; and the rest has segments of its own.
	fill := s
	if largest > s/4 {
		fill = max(s-min(largest, s), s/2)
	}
	z.Segments = int((kept+fill-1)/fill) + 2
	z.Buffers = z.Segments + 16*f.Devices
	err := f.space(&z)
	if z.Room < f.stored() { // only then are there samples that the log does not keep
		step := uint64(max(f.Ranks, 1)) * f.Batch
		z.Miss = max(min(bigSide, max(8<<20, f.Kept/8)), 2*step, f.SourceRate)
	}
	if f.Static { // two steps, with the pages that a read by place begins and ends with
		z.Miss = max(z.Miss, 2*uint64(max(f.Ranks, 1))*uint64(f.BatchSamples)*8<<10)
	}
	f.sum(&z, false, 2)
	return z, err
}

// sum computes what follows from the credit, and M. There are least slots, or as many as are needed.
func (f Facts) sum(z *Sizing, roomy bool, least int) {
	if f.Ranks > 1 || f.largestKept() > f.Batch { // the chunk with a huge sample lies in two, and the client that holds it asks for the next one
		least = max(least, 3)
	}
	z.Slots = max(2+int(z.Credit/z.Slot), least)
	if roomy {
		// What clients hold may straddle one more segment than it fills. Where that is much of a segment, the disk would idle until it is
		// released: measured, 0.8 instead of 1.1 GB/s at two segments' worth.
		z.Slots = max(2+int((z.Credit+z.Slot/2)/z.Slot), least)
	}
	// Whatever clients hold may have come by index, where each sample takes its pages whole and one more at each end; one request of
	// each rank must fit in addition to it, and the spare part that no lease may take.
	request := f.Batch + uint64(f.BatchSamples)*12<<10
	z.Spare = max(leastSpare, f.Largest+8<<10)
	z.Side = max(min(bigSide, max(8<<20, f.Kept/8)), z.Credit+uint64(max(f.Ranks, 1))*request+z.Spare) - z.Spare
	if huge := f.huge(); huge > 0 {
		z.Side = max(z.Side, z.Credit+uint64(max(f.Ranks, 1))*request) // the spare part is for the huge one
	}
	z.Request = max(z.Side, 4*f.huge()+request)
	z.Miss, z.Side, z.Spare = pages(z.Miss), pages(z.Side), pages(z.Spare)
	z.Scratch = f.scratch(z.Block)
	z.Memory = uint64(z.Slots)*z.Slot + uint64(2*z.Segments+16*f.Devices+16)*z.Block + z.Side + z.Spare + z.Miss + z.Scratch + f.unpacking(z.Block) + f.tables() + f.Packages
}

func pages(n uint64) uint64 { return (n + page - 1) / page * page }

// tables is the memory of tables and orders.
func (f Facts) tables() uint64 {
	if f.TableBytes > 0 {
		return f.TableBytes * uint64(f.Samples)
	}
	return uint64(bytesEach * float64(f.Samples))
}

// huge is the largest sample where it is larger than a batch of others; else 0. A slot holds it, and so does the spare part. Side memory does not: a request by
// index that has it is lent piece by piece. docs/adr/0015-huge-samples.md has the reason.
func (f Facts) huge() uint64 {
	if f.Largest <= f.Batch {
		return 0
	}
	return f.Largest
}

// roof bounds what credit takes where samples are huge: four of the largest, which three slots and the spare part hold, and 256 MB for all else, if the need
// is not more.
func (f Facts) roof(need, limit uint64) uint64 {
	if f.huge() == 0 || f.Ranks > 1 || f.Packed && f.largestPacked() == f.Largest {
		return limit
	}
	roof := max(need, 4*f.Largest+256e6)
	if limit == 0 {
		return roof
	}
	return min(limit, roof)
}

// credit gives clients the memory that the limit leaves, up to the larger of three batches and 16 MB for each rank: one batch in the loop, one
// being delivered, one in flight.
func (f Facts) credit(z *Sizing, limit uint64) {
	want := uint64(max(f.Ranks, 1)) * max(3*f.Batch, 16<<20)
	for want > z.Credit {
		try := *z
		try.Credit = want
		f.sum(&try, true, 2)
		if limit == 0 || try.Memory <= limit {
			*z = try
			return
		}
		want = (want + z.Credit) / 2
		if want-z.Credit < 1<<20 {
			return
		}
	}
}

// third takes a third slot, where the memory that was given has room for another one beside it. With two the disk idles while a client holds a batch of one and asks for samples of two
// others; and while one is taken by samples that a drawn epoch leaves out, on their way to the next log.
func (f Facts) third(z *Sizing) {
	if f.Memory == 0 || f.Static || z.Slots > 2 {
		return
	}
	try := *z
	if f.sum(&try, true, 3); try.Memory+try.Slot <= f.Memory {
		*z = try
	}
}

// stored returns the bytes of Kept on disk.
func (f Facts) stored() uint64 {
	if !f.Packed {
		return f.Kept
	}
	return f.Stored
}

// HoldsAll reports whether the log has room for all samples.
func (z Sizing) HoldsAll(f Facts) bool { return z.Room >= f.stored() }

// Ring returns the bytes of the ring at the start.
func (z Sizing) Ring() uint64 {
	if !z.Lent {
		return z.Miss
	}
	return z.Miss + uint64(z.Slots)*z.Slot
}

// Plain returns how many bytes of samples a number of bytes on disk holds.
func (f Facts) Plain(room uint64) uint64 {
	if room >= f.stored() {
		return f.Kept
	}
	if !f.Packed {
		return room
	}
	return min(f.Kept, uint64(float64(room)*(float64(f.Kept)/float64(f.Stored))))
}

// InLog returns how many bytes of samples the log holds at most: all, or as many as the budget has room for.
func (f Facts) InLog() uint64 {
	if f.Budget == 0 {
		return f.Kept
	}
	return f.Plain(f.Budget)
}

// scratch is the memory that the pass reads blocks to before it unpacks their samples: twice the devices' bytes in flight, so that
// the devices stay busy, and the largest sample that is compressed, which must lie there as a whole. A small log is read as a whole.
func (f Facts) scratch(w uint64) uint64 {
	if !f.Packed {
		return 0
	}
	up := func(n uint64) uint64 { return (n + w - 1) / w * w }
	return min(up(2*InFlight*uint64(max(f.Devices, 1))), up(f.stored())) + up(f.largestPacked()) + w
}

// unpacking is the other memory of a cache that compresses: for reads by index a device's bytes in flight, and the largest compressed sample; and the
// same again where its pieces are put together, and where it is packed. Samples under a block take little compared with it.
func (f Facts) unpacking(w uint64) uint64 {
	if !f.Packed {
		return 0
	}
	return f.PackedReads() + 2*f.largestPacked() + 8*w
}

// PackedReads is the memory for reads by index of a cache that compresses.
func (f Facts) PackedReads() uint64 {
	return max(256<<10, min(InFlight, f.stored())) + f.largestPacked() + 8<<10
}

// space sets slack and arena. With everything admitted the arena is the samples and the slack; with a budget it is the budget
// less the bytes of manifest, sums and journals.
func (f Facts) space(z *Sizing) error {
	w := z.Block
	most := 2*max(z.Segment, uint64(z.Segments)*w) + 32*w
	least := f.leastSlack(w)
	stored := f.stored()
	need := (stored+w-1)/w*w + max(least, min(most, stored/99))
	if f.Budget == 0 || f.Budget >= need+f.Metadata {
		z.Slack = need - stored
		z.Arena = need
		z.Room = stored
		z.Budget = f.Budget
		if f.Budget == 0 {
			z.Budget = need + f.Metadata
		}
		return nil
	}
	z.Slack = max(least, min(most, f.Budget/100))
	z.Budget = f.Budget
	if f.Budget < f.Metadata+z.Slack+w {
		return fmt.Errorf("budget of %s is too small: the index takes %s and the log at least %s; give --budget %s or more",
			humanize.IBytes(f.Budget), humanize.IBytes(f.Metadata), humanize.IBytes(z.Slack+w), roundUp(f.leastBudget()))
	}
	z.Arena = (f.Budget - f.Metadata) / w * w
	z.Room = z.Arena - z.Slack
	return nil
}

// leastSlack is 32 blocks; and a sample on its way may be in both Logfiles, so there is room for the largest one, twice.
func (f Facts) leastSlack(w uint64) uint64 { return 32*w + 2*(max(f.largestKept(), w)-1)/w*w }

func (f Facts) largestKept() uint64 {
	if f.LargestKept > 0 {
		return f.LargestKept
	}
	return f.Largest
}

func (f Facts) largestPacked() uint64 {
	if f.LargestPacked > 0 {
		return f.LargestPacked
	}
	return f.Largest
}

// leastBudget is a budget, in whole MiB, that is not refused and leaves room for a sample. Block and slack grow with the budget, so it is approached from below.
func (f Facts) leastBudget() uint64 {
	for f.Budget = f.Metadata; ; {
		w := f.Block
		if w == 0 {
			w = chooseBlock(f)
		}
		least := f.Metadata + max(f.leastSlack(w), f.Budget/100) + w + f.largestKept()
		if f.Budget >= least {
			return f.Budget
		}
		f.Budget = (least + 1<<20 - 1) >> 20 << 20
	}
}

// roundUp prints a size that is safe to give back as a flag: never below n.
func roundUp(n uint64) string { return fmt.Sprintf("%dMiB", (n+1<<20-1)>>20) }
