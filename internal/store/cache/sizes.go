package cache

import (
	"cmp"
	"math"
	"os"
	"path/filepath"

	"lcache/chunker"
	"lcache/internal/compress"
	"lcache/internal/host"
	"lcache/sample"
)

// Size computes the sizes for this job and a memory limit in bytes. The block size is fixed by FORMAT. The segments of a Logfile that exists are the
// least size of a segment.
func (c *Cache) Size(memory uint64) (chunker.Sizing, error) {
	f := c.Facts()
	f.Memory = memory
	f.Block = uint64(c.Format.Block)
	for _, l := range c.Store.Logfiles() {
		if l != nil {
			f.Segment = max(f.Segment, uint64(l.Header().SegmentBlocks-1)*f.Block)
		}
	}
	if p := c.Store.Packages(); p != nil {
		h := p.Log().Header()
		f.Packages = PackagesBytes(h.Open, h.Segments, h.Starts[h.Segments], f.Block)
		f.Segment = max(f.Segment, uint64(h.SegmentBlocks-1)*f.Block) // a slot has one block more
	}
	z, err := chunker.Size(f)
	if err != nil && f.Packages > 0 { // the limit was enough before a Logfile became packages, and these take the memory of write buffers only once something is put into them
		f.Packages = 0
		z, err = chunker.Size(f)
	}
	if err != nil && memory > 0 && memory == uint64(c.Record.Memory) { // it may be the minimum of before pushed orders were a part of it
		f.Memory += OrderBytes * uint64(f.Samples)
		z, err = chunker.Size(f)
	}
	if err != nil {
		return z, err
	}
	z.Arena = uint64(c.Format.Places) * f.Block
	return z, nil
}

// PackagesBytes is the memory that packages take of which open are filled at once: write buffers for these and for as many on their way, and two more; what
// is known of each package; and an index of each of samples.
func PackagesBytes(open, packages uint32, samples, block uint64) uint64 {
	return (2*uint64(open)+2)*block + perPackage*uint64(packages) + 4*samples
}

// perPackage is how many bytes of tables a package has.
const perPackage = 256

// Facts returns the facts that sizes follow from.
func (c *Cache) Facts() chunker.Facts {
	f := c.facts()
	f.Metadata += c.importanceBytes(f)
	return f
}

// facts returns the same, with metadata that has no part for importance.
func (c *Cache) facts() chunker.Facts {
	sizes := c.Manifest.Sizes()
	align := c.Format.Align
	if align == 0 {
		align = AlignFor(c.Manifest)
	}
	f := chunker.Facts{Samples: len(sizes), TableBytes: tableBytes, Ranks: len(c.Schedule.Local()), Devices: len(c.Dirs), Budget: uint64(c.Record.Budget), MemoryCap: host.MachineMemory() / 4}
	all := uint64(0)
	for _, s := range sizes {
		p := chunker.Padded(s, align)
		all += p
		f.Largest = max(f.Largest, p)
	}
	c.Placement().fill(&f)
	f.Static = c.IsStatic()
	batch := max(c.Record.Job.BatchSize, 1)
	if len(sizes) > 0 {
		f.Batch = batchBytes(f.Largest, c.Record.Chunk, uint64(min(batch, len(sizes)))*(all/uint64(len(sizes))+1))
	}
	f.BatchSamples = batch
	if c.Record.IsPacked() {
		f.Packed, f.Stored, f.LargestPacked = true, c.Record.Stored, f.Largest
		if most := mostPacked(sizes, f); uint64(most) < f.Largest {
			f.LargestPacked = c.largestPacked(most, align)
		}
	}
	f.Metadata = c.MetadataBytes(f.InLog(), c.leastBlock(f))
	if f.Packed {
		f.Metadata += lengthBytes * uint64(len(sizes))
	}
	f.Metadata += c.changeBytes(f.Metadata)
	return f
}

// changeBytes returns how many bytes are kept free for a change of the source: the source may grow a little, and the cache with it, within the budget. While a cache is adapted it has manifest and checksums twice; where the manifest is
// packed there is room for that.
func (c *Cache) changeBytes(metadata uint64) uint64 {
	grown := metadata / 16
	if !c.Record.PackedManifest {
		return grown
	}
	return max(grown, c.manifestBytes()+SumsBytes(c.Manifest.Len()))
}

// SumsBytes returns the length of the file of checksums of n samples.
func SumsBytes(n int) uint64 { return 4096 + 12*uint64(n) }

// manifestBytes returns the length of the manifest's file, or of the one that is planned.
func (c *Cache) manifestBytes() uint64 { return cmp.Or(c.planned, c.Manifest.FileBytes()) }

// leastBlock returns the size of a block that metadata is reserved for: the least that the cache may have. Caches with larger blocks were sized for those of 128 KiB.
func (c *Cache) leastBlock(f chunker.Facts) uint64 {
	if c.Format.Block > 0 {
		return min(uint64(c.Format.Block), 128<<10)
	}
	return f.LeastBlock()
}

// hugeSample is the size from which on a sample that is larger than two batches does not count as a batch: what memory holds several times is a usual
// batch, and the huge sample is held once where it may be.
const hugeSample = 16 << 20

// batchBytes returns the largest chunk of usual samples. largest is the largest sample, chunk the largest chunk of the first epoch (0: not known), and mean a
// batch of samples of mean size.
func batchBytes(largest, chunk, mean uint64) uint64 {
	if largest <= hugeSample || largest <= 2*mean {
		return max(largest, chunk, mean)
	}
	return min(max(mean, chunk-min(chunk, largest)), largest)
}

// mostPacked returns the size of the largest samples that are compressed. Huge samples are stored as they are, if they are few: no more than one of a hundred.
// docs/adr/0027-huge-samples-as-they-are.md has the reason.
func mostPacked(sizes []uint32, f chunker.Facts) uint32 {
	most := max(f.Batch, hugeSample)
	if f.Largest <= most {
		return math.MaxUint32
	}
	n := 0
	for _, s := range sizes {
		if uint64(s) > most {
			n++
		}
	}
	if n > max(1, len(sizes)/100) {
		return math.MaxUint32
	}
	return uint32(most)
}

// MostPacked returns the size of the largest samples that a cache compresses.
func (c *Cache) MostPacked() uint32 { return mostPacked(c.Manifest.Sizes(), c.Facts()) }

// largestPacked returns the padded size of the largest sample that is compressed, or can be. An earlier server may have compressed larger ones than this one does.
func (c *Cache) largestPacked(most uint32, align int) (largest uint64) {
	for i, s := range c.Manifest.Sizes() {
		var length uint32
		if c.Lengths != nil {
			length = c.Lengths.Get(sample.Index(i))
		}
		if p := chunker.Padded(s, align); p > largest && compress.MayPack(s, length, most) {
			largest = p
		}
	}
	return largest
}

// tableBytes is what tables and orders take a sample: place and address 12, two lines (order, segments, arrival list) 24, lines made ahead 16,
// orders 12, pushed orders 8. docs/adr/0014-tables-in-memory.md and docs/adr/0038-one-account.md have the reasons.
const tableBytes = 64 + OrderBytes

// OrderBytes is what pushed orders have of the computed minimum of --memory, a sample.
const OrderBytes = 8

// IsStatic reports whether the cache is served in the static layout.
func (c *Cache) IsStatic() bool { return c.Layout == LayoutStatic }

// AlignFor returns the alignment of samples in the log, in bytes. Short samples are padded less.
func AlignFor(m *sample.Manifest) int {
	if n := uint64(m.Len()); n > 0 && m.Bytes()/n >= 4096 {
		return 64
	}
	return 8
}

// MetadataBytes returns the bytes that the cache needs on disk in addition to its arena: manifest, index of shards, checksums, inodes, both journals, and the small files. A
// journal has a record for each block, an index for each sample that the log holds, and both once more for tails. kept is how many bytes of samples the log
// holds at most, block the least size of a block.
func (c *Cache) MetadataBytes(kept, block uint64) uint64 {
	n := uint64(c.Manifest.Len())
	listed := c.manifestBytes()
	if st, err := os.Stat(filepath.Join(c.Dirs[0], ShardsName)); err == nil {
		listed += uint64(st.Size())
	}
	blocks := kept/block + 1
	held := n
	if all := c.Manifest.Bytes(); kept < all {
		held = uint64(float64(n)*(float64(kept)/float64(all))) + 1
	}
	others := min(256<<10, max(64<<10, kept/512)) // the small files
	return listed + 12*n + c.inodesBytes() + 2*(5*held+160*blocks) + others
}

// PlanManifest sets how long the file of the manifest will be, in bytes, before it is written; 0: as it is.
func (c *Cache) PlanManifest(bytes uint64) { c.planned = bytes }
