package chunker

import (
	"fmt"
	"lcache/internal/errcode"
	"math"

	"github.com/dustin/go-humanize"
)

// Facts are the inputs of Size, in bytes unless said.
type Facts struct {
	Kept          uint64 // padded bytes that the log would hold if the whole dataset were admitted
	Packed        bool   // the cache compresses: samples are unpacked from scratch memory
	Stored        uint64 // with Packed: bytes of Kept on disk
	Samples       int    // in the manifest
	TableBytes    uint64 // memory of tables and orders for each sample; 0: the MetaIndex of the design
	Largest       uint64 // size of the largest sample, padded
	LargestKept   uint64 // largest sample that the log may hold; 0: Largest
	LargestPacked uint64 // with Packed: the largest sample that is compressed; 0: Largest
	Batch         uint64 // the largest chunk, approximately: batch size × mean size; less than Largest if a few samples are much larger than the others
	BatchSamples  int    // samples of a chunk
	Ranks         int    // on this server
	Devices       int
	Metadata      uint64 // manifest, checksums and journals on disk: part of the budget
	Budget        uint64 // 0: as much as the dataset needs
	Memory        uint64 // limit; 0: as much as is needed, at most MemoryCap
	MemoryCap     uint64 // for the default: a quarter of the machine's memory
	Block         uint64 // fixed by FORMAT, or 0 to choose
	SourceRate    uint64 // bytes per second; 0: unknown
	Segment       uint64 // the minimum, from an existing Logfile; 0: any
	Packages      uint64 // memory of the cache's packages; 0: no packages
	Static        bool   // the static layout: the miss ring has the slots' memory
}

// Sizing is the result of Size: every term of the memory and space formulas.
type Sizing struct {
	Block    uint64 // W
	Segment  uint64 // s: capacity of a segment, whole blocks
	Slot     uint64 // a segment, and one block that a restart may waste
	Segments int    // K, approximately
	Slots    int    // n
	Lent     bool   // the ring has the slots' memory until samples are read in order
	Buffers  int    // write buffers of one Logfile: K, and those in flight
	Miss     uint64 // the miss ring, without the memory that slots lend it
	Side     uint64
	Spare    uint64 // for requests for which leases leave no room in Side; at least the largest sample
	Scratch  uint64 // for compressed blocks on their way into a slot; 0 without compression
	Request  uint64 // a larger request is refused. If Side can't hold a smaller one, it is lent piece by piece
	Credit   uint64 // L: bytes that clients may hold at once
	Memory   uint64 // M, all memory
	Slack    uint64 // arena beyond the samples themselves
	Arena    uint64 // bytes on disk for blocks
	Room     uint64 // bytes of the arena for samples: the bound of admission
	Budget   uint64
}

// InFlight is the number of bytes of large reads in flight on one device. More would delay other, small reads, and would not be faster.
const InFlight = 16 << 20

const (
	maxBlock   = 1 << 20
	usualBlock = 256 << 10 // smaller blocks make reads that are slow on a volume that is limited in operations
	minBlock   = 128 << 10
	tinyBlock  = 64 << 10 // only if the slack of larger blocks would take much of the budget
	bigSide    = 64 << 20
	leastSpare = 1 << 20  // so that many small samples are lent at once
	bytesEach  = 28.5     // MetaIndex of the design, for each sample
	behindHuge = 16 << 20 // room in a segment after a huge sample
	page       = 4 << 10  // parts of the shared memory are whole pages
)

// Size chooses block, segment and slots so that memory and disk space stay within their limits. If that is impossible, the error has the required number.
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
			if huge := pages(f.huge() + page); f.huge() > 0 && z.Memory+huge <= f.Memory { // room for clients without temporary leases to read it by index, too
				z.Side, z.Memory = z.Side+huge, z.Memory+huge
			}
			return z, nil
		}
		if f.Block != 0 || w/2 < minBlock {
			return z, errcode.Errorf(errcode.Memory, "memory of %s is too small for this dataset: %s are needed (segments of %s, %d of them); give --memory %s or more",
				humanize.IBytes(limit), humanize.IBytes(z.Memory), humanize.IBytes(z.Segment), z.Segments, roundUp(z.Memory))
		}
		w /= 2
	}
}

// chooseBlock halves the block, down to 256 KiB, while 32 blocks (the minimum slack) are more than 1 % of the budget. It then takes
// LeastBlock in two cases: 32 blocks are more than a quarter of the budget, or they are more than 2 % of a budget that has no room for
// all samples. LeastBlock is 64 KiB if 32 blocks of 128 KiB are more than 5 % of the budget, else 128 KiB. A volume limited in operations
// loses less by smaller reads than such a small cache loses by misses.
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

// LeastBlock returns the smallest block that a new cache with these facts may have.
func (f Facts) LeastBlock() uint64 {
	if f.Budget != 0 && f.Budget < f.stored() && 32*minBlock > f.Budget/20 {
		return tinyBlock
	}
	return minBlock
}

// at computes M for a block size with the minimum that clients need: one batch for each rank.
func (f Facts) at(w uint64) (Sizing, error) {
	kept := f.Kept
	if f.Budget > 0 && f.Budget < f.stored() {
		kept = f.Plain(f.Budget)
	}
	up := func(n uint64) uint64 { return (n + w - 1) / w * w }
	// After a huge sample its segment has room for the rest of its chunk, so that the chunk is in two segments and not in three.
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
	// A segment ends before the first sample that does not fit. That wastes little if samples are small compared with a segment, and up to
	// half of it if they are not. The unused samples have segments of their own.
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
	if f.Static { // two steps, with the pages at both ends of a random read
		z.Miss = max(z.Miss, 2*uint64(max(f.Ranks, 1))*uint64(f.BatchSamples)*8<<10)
	}
	f.sum(&z, false, 2)
	return z, err
}

// sum computes M and the sizes that follow from the credit. The number of slots is at least least.
func (f Facts) sum(z *Sizing, roomy bool, least int) {
	if f.Ranks > 1 || f.largestKept() > f.Batch { // the chunk with a huge sample is in two segments, and its client requests the next chunk while it holds it
		least = max(least, 3)
	}
	z.Slots = max(2+int(z.Credit/z.Slot), least)
	if roomy {
		// The bytes that clients hold may cross into one more segment than they fill. If that is much of a segment, the disk idles until the
		// segment is released: measured with two segments, 0.8 instead of 1.1 GB/s.
		z.Slots = max(2+int((z.Credit+z.Slot/2)/z.Slot), least)
	}
	// All bytes that clients hold may have been read by index. Each sample then takes whole pages, and one more at each end. In addition one
	// request of each rank must fit, and the spare part, which no lease may take.
	request := f.Batch + uint64(f.BatchSamples)*12<<10
	z.Spare = max(leastSpare, f.Largest+8<<10)
	z.Side = max(min(bigSide, max(8<<20, f.Kept/8)), z.Credit+uint64(max(f.Ranks, 1))*request+z.Spare) - z.Spare
	if huge := f.huge(); huge > 0 {
		z.Side = max(z.Side, z.Credit+uint64(max(f.Ranks, 1))*request) // the spare part is for the huge sample
	}
	z.Request = max(z.Side, 4*f.huge()+request)
	z.Miss, z.Side, z.Spare = pages(z.Miss), pages(z.Side), pages(z.Spare)
	z.Scratch = f.scratch(z.Block)
	z.Memory = uint64(z.Slots)*z.Slot + uint64(2*z.Segments+16*f.Devices+16)*z.Block + z.Side + z.Spare + z.Miss + z.Scratch + f.unpacking(z.Block) + f.tables() + f.Packages
}

func pages(n uint64) uint64 { return (n + page - 1) / page * page }

// tables returns the memory of tables and orders.
func (f Facts) tables() uint64 {
	if f.TableBytes > 0 {
		return f.TableBytes * uint64(f.Samples)
	}
	return uint64(bytesEach * float64(f.Samples))
}

// huge returns the largest sample if it is larger than a batch of others, else 0. A slot holds it, and so does the spare part. Side memory
// does not: a request by index with this sample is lent piece by piece. docs/adr/0015-huge-samples.md has the reason.
func (f Facts) huge() uint64 {
	if f.Largest <= f.Batch {
		return 0
	}
	return f.Largest
}

// roof bounds the credit if there are huge samples: four of the largest ones, which three slots and the spare part hold, and 256 MB for
// everything else; or the need, if that is more.
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

// credit gives clients the memory that the limit leaves, up to the larger of three batches and 16 MB for each rank: one batch in the
// training loop, one being delivered, one in flight.
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

// third adds a third slot, if the given memory has room for it. With two slots the disk idles in two cases: a client holds a batch from
// one segment and requests samples of two others; and one slot is taken by samples that an importance-sampled epoch leaves out, on their
// way to the next log.
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

// Ring returns the initial bytes of the miss ring.
func (z Sizing) Ring() uint64 {
	if !z.Lent {
		return z.Miss
	}
	return z.Miss + uint64(z.Slots)*z.Slot
}

// Plain returns the bytes of samples that some bytes on disk hold.
func (f Facts) Plain(room uint64) uint64 {
	if room >= f.stored() {
		return f.Kept
	}
	if !f.Packed {
		return room
	}
	return min(f.Kept, uint64(float64(room)*(float64(f.Kept)/float64(f.Stored))))
}

// InLog returns the most bytes of samples that the log holds: all, or as many as the budget has room for.
func (f Facts) InLog() uint64 {
	if f.Budget == 0 {
		return f.Kept
	}
	return f.Plain(f.Budget)
}

// scratch returns the memory for blocks whose samples are unpacked by the scan: twice the devices' bytes in flight, so that the devices
// stay busy, and the largest compressed sample, which must be in it as a whole. A small log needs no more than its size.
func (f Facts) scratch(w uint64) uint64 {
	if !f.Packed {
		return 0
	}
	up := func(n uint64) uint64 { return (n + w - 1) / w * w }
	return min(up(2*InFlight*uint64(max(f.Devices, 1))), up(f.stored())) + up(f.largestPacked()) + w
}

// unpacking returns the other memory of a cache that compresses. Reads by index take a device's bytes in flight, and the largest
// compressed sample. Joining pieces and compressing take the same again. Samples under a block take little in comparison.
func (f Facts) unpacking(w uint64) uint64 {
	if !f.Packed {
		return 0
	}
	return f.PackedReads() + 2*f.largestPacked() + 8*w
}

// PackedReads returns the memory for reads by index of a cache that compresses.
func (f Facts) PackedReads() uint64 {
	return max(256<<10, min(InFlight, f.stored())) + f.largestPacked() + 8<<10
}

// space computes slack and arena. If all samples are admitted, the arena is the samples and the slack. With a budget it is the budget
// minus manifest, checksums and journals.
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
		return errcode.Errorf(errcode.BudgetTooSmall, "budget of %s is too small: the index takes %s and the log at least %s; give --budget %s or more",
			humanize.IBytes(f.Budget), humanize.IBytes(f.Metadata), humanize.IBytes(z.Slack+w), roundUp(f.leastBudget()))
	}
	z.Arena = (f.Budget - f.Metadata) / w * w
	z.Room = z.Arena - z.Slack
	return nil
}

// leastSlack returns 32 blocks, and room for the largest sample twice, because a sample may be in both Logfiles while it moves.
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

// leastBudget returns a budget, in whole MiB, that is accepted and leaves room for a sample. Block and slack grow with the budget, so it is approached from below.
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
