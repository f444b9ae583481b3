package plan

import "math"

// defaultOpBytes is the largest request that counts as one operation if none is given: cloud volumes split larger ones at 256 KiB.
const defaultOpBytes = 256 << 10

// DiskLine describes a disk by its limits. A limit of 0 means unlimited. All devices of a cache together are one DiskLine.
type DiskLine struct {
	ReadBPS      float64 `json:"read_bps,omitempty"`      // bytes/s, reads alone
	WriteBPS     float64 `json:"write_bps,omitempty"`     // bytes/s, writes alone
	CombinedBPS  float64 `json:"combined_bps,omitempty"`  // bytes/s, reads and writes together
	ReadIOPS     float64 `json:"read_iops,omitempty"`     // operations/s
	WriteIOPS    float64 `json:"write_iops,omitempty"`    // operations/s
	CombinedIOPS float64 `json:"combined_iops,omitempty"` // operations/s, reads and writes together
	OpBytes      float64 `json:"op_bytes,omitempty"`      // the largest request that counts as one operation; 0 means 256 KiB if operations are limited
	Mix          float64 `json:"mix,omitempty"`           // φ, from 0: reads and writes do not disturb each other, to 1: they share one pipe
	QueueDepth   float64 `json:"queue_depth,omitempty"`   // reads in flight; 0 means 64
	Latency      float64 `json:"latency_s,omitempty"`     // seconds of one read at that depth
	Burst        float64 `json:"burst_s,omitempty"`       // burst credit after a rest, in seconds of operation at the limits
}

// Transfer is a number of bytes moved in requests of one size. A Request of 0 counts no operations.
type Transfer struct {
	Bytes   float64
	Request float64
}

// Seconds returns how long the disk is busy with a read and a write at the same time. The slowest limit determines
// it.
func (d DiskLine) Seconds(read, write Transfer) float64 {
	x, y := per(read.Bytes, d.ReadBPS), per(write.Bytes, d.WriteBPS)
	nr, nw := d.operations(read), d.operations(write)
	return max(
		max(x, y)+d.Mix*min(x, y),
		per(read.Bytes+write.Bytes, d.CombinedBPS),
		per(nr, d.ReadIOPS), per(nw, d.WriteIOPS), per(nr+nw, d.CombinedIOPS),
		d.waiting(read),
	)
}

// waiting returns the time of the reads because of their latency and the queue depth.
func (d DiskLine) waiting(read Transfer) float64 {
	if d.Latency == 0 || read.Request == 0 {
		return 0
	}
	return read.Bytes / read.Request * d.Latency / d.depth()
}

func (d DiskLine) depth() float64 {
	if d.QueueDepth > 0 {
		return d.QueueDepth
	}
	return 64
}

// operations returns the number of operations that the disk counts for a transfer.
func (d DiskLine) operations(t Transfer) float64 {
	if t.Request == 0 {
		return 0
	}
	return t.Bytes / t.Request * d.split(t.Request)
}

// split returns how many operations the disk counts for one request of q bytes.
func (d DiskLine) split(q float64) float64 {
	u := d.OpBytes
	if u == 0 {
		u = defaultOpBytes
	}
	return math.Ceil(q / u)
}

// Mix returns φ for a device with the given rates of reads alone and writes alone, and of both at the same time. All are in bytes/s.
func Mix(read, write, bothRead, bothWrite float64) float64 {
	x, y := bothRead/read, bothWrite/write
	return clip((1-max(x, y))/min(x, y), 0, 1)
}

// tauLog returns the disk seconds per byte of a reordered log: each byte is read and written once in an epoch.
func (d DiskLine) tauLog() float64 {
	x, y := per(1, d.ReadBPS), per(1, d.WriteBPS)
	return max(max(x, y)+d.Mix*min(x, y), per(2, d.CombinedBPS))
}

// randomIOPS returns the random reads per second of the disk; 0: unlimited.
func (d DiskLine) randomIOPS() float64 {
	switch {
	case d.ReadIOPS == 0:
		return d.CombinedIOPS
	case d.CombinedIOPS == 0:
		return d.ReadIOPS
	}
	return min(d.ReadIOPS, d.CombinedIOPS)
}

// SmallestBlock returns the block size below which operations, not bytes, limit a reordered log: bandwidth divided by operations, and at least 128 KiB.
func (d DiskLine) SmallestBlock() float64 {
	least := float64(leastBlock)
	tau := d.tauLog()
	if tau == 0 {
		return least
	}
	return max(least, max(per(1, d.ReadIOPS), per(1, d.WriteIOPS), per(2, d.CombinedIOPS))/tau)
}

// per returns the time that an amount takes at a rate; a rate of 0 means unlimited.
func per(amount, rate float64) float64 {
	if rate == 0 || amount == 0 {
		return 0
	}
	return amount / rate
}

func clip(x, least, most float64) float64 {
	return min(max(x, least), most)
}
