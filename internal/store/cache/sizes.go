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

// Size computes the sizes for this job and a memory limit in bytes. FORMAT fixes the block size. Segments are at least as large as in an
// existing Logfile.
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
	if err != nil && f.Packages > 0 { // the limit may have been enough before a Logfile became packages; these take memory for write buffers only when they are filled
		f.Packages = 0
		z, err = chunker.Size(f)
	}
	if err != nil && memory > 0 && memory == uint64(c.Record.Memory) { // it may be the minimum from before pushed orders were included
		f.Memory += OrderBytes * uint64(f.Samples)
		z, err = chunker.Size(f)
	}
	if err != nil {
		return z, err
	}
	z.Arena = uint64(c.Format.Places) * f.Block
	return z, nil
}

// PackagesBytes returns the memory of packages. It includes two write buffers for each of the open packages, which are filled at once, and
// two more buffers; a table entry for each package; and an index for each sample.
func PackagesBytes(open, packages uint32, samples, block uint64) uint64 {
	return (2*uint64(open)+2)*block + perPackage*uint64(packages) + 4*samples
}

// perPackage is the size of a package's table entries in bytes.
const perPackage = 256

// Facts returns the facts from which sizes are computed.
func (c *Cache) Facts() chunker.Facts {
	f := c.facts()
	f.Metadata += c.importanceBytes(f)
	return f
}

// facts is Facts with metadata that excludes importance.
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

// changeBytes returns the bytes to keep free for a change of the source: source and cache may grow a little within the budget. While a cache
// is adapted, it has manifest and checksums twice. If the manifest is packed, there is room for that.
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

// leastBlock returns the block size for which metadata is reserved: the smallest that the cache may have. Caches with larger blocks were sized for 128 KiB.
func (c *Cache) leastBlock(f chunker.Facts) uint64 {
	if c.Format.Block > 0 {
		return min(uint64(c.Format.Block), 128<<10)
	}
	return f.LeastBlock()
}

// hugeSample is the minimum size of a sample that does not count as a batch although it is larger than two batches. Memory is sized for
// several usual batches, and for one huge sample in each place that may hold it.
const hugeSample = 16 << 20

// batchBytes returns the largest chunk of usual samples. largest is the largest sample, chunk the largest chunk of the first epoch (0:
// unknown), and mean a batch of samples of mean size.
func batchBytes(largest, chunk, mean uint64) uint64 {
	if largest <= hugeSample || largest <= 2*mean {
		return max(largest, chunk, mean)
	}
	return min(max(mean, chunk-min(chunk, largest)), largest)
}

// mostPacked returns the size of the largest compressed samples. Huge samples are stored uncompressed if they are few: at most one in a
// hundred. docs/adr/0027-huge-samples-as-they-are.md has the reason.
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

// MostPacked returns the size of the largest samples that the cache compresses.
func (c *Cache) MostPacked() uint32 { return mostPacked(c.Manifest.Sizes(), c.Facts()) }

// largestPacked returns the padded size of the largest sample that is or can be compressed. An earlier server may have compressed larger ones.
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

// tableBytes is the memory of tables and orders for each sample: location and address 12, two layouts (order, segments, arrival list) 24,
// layouts made ahead 16, orders 12, pushed orders 8. docs/adr/0014-tables-in-memory.md and docs/adr/0038-one-account.md have the reasons.
const tableBytes = 64 + OrderBytes

// OrderBytes is the part of the computed minimum of --memory that is for pushed orders, for each sample.
const OrderBytes = 8

// IsStatic reports whether the cache is served in the static layout.
func (c *Cache) IsStatic() bool { return c.Layout == LayoutStatic }

// AlignFor returns the alignment of samples in the log, in bytes. It is smaller for small samples.
func AlignFor(m *sample.Manifest) int {
	if n := uint64(m.Len()); n > 0 && m.Bytes()/n >= 4096 {
		return 64
	}
	return 8
}

// MetadataBytes returns the bytes on disk in addition to the arena: manifest, index of shards, checksums, inodes, both journals, and the
// small files. A journal has a record for each block, an index for each sample in the log, and both again for tails. kept is the most bytes
// of samples in the log, and block the smallest size of a block.
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

// PlanManifest sets the length of the manifest's file, in bytes, before it is written; 0: its current length.
func (c *Cache) PlanManifest(bytes uint64) { c.planned = bytes }
