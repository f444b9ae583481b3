package plan

import "math"

// defaultOpBytes is the largest request that counts as one operation where nobody said otherwise: cloud volumes split at
// 256 KiB.
const defaultOpBytes = 256 << 10

// DiskLine describes a disk by its limits. A limit of 0 is not known to bind, which is to say unlimited. All devices of a
// cache together are one line.
type DiskLine struct {
	ReadBPS      float64 `json:"read_bps,omitempty"`      // bytes/s, reads alone
	WriteBPS     float64 `json:"write_bps,omitempty"`     // bytes/s, writes alone
	CombinedBPS  float64 `json:"combined_bps,omitempty"`  // bytes/s, reads and writes together
	ReadIOPS     float64 `json:"read_iops,omitempty"`     // operations/s
	WriteIOPS    float64 `json:"write_iops,omitempty"`    // operations/s
	CombinedIOPS float64 `json:"combined_iops,omitempty"` // operations/s, reads and writes together
	OpBytes      float64 `json:"op_bytes,omitempty"`      // the largest request that counts as one operation; 0 means 256 KiB where operations are limited
	Mix          float64 `json:"mix,omitempty"`           // φ: 0 reads and writes do not disturb each other … 1 they share one pipe
	QueueDepth   float64 `json:"queue_depth,omitempty"`   // reads in flight; 0 means 64
	Latency      float64 `json:"latency_s,omitempty"`     // seconds of one read at that depth
	Burst        float64 `json:"burst_s,omitempty"`       // seconds' worth of its limits that a disk gives at once after a rest
}

// Transfer is a number of bytes moved in requests of one size. A Request of 0 counts no operations.
type Transfer struct {
	Bytes   float64
	Request float64
}

// Seconds returns how long the disk is busy with a read and a write that run side by side: the slowest of its limits.
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

// waiting is how long the queue takes for the latency of its reads.
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

// operations is how many operations the disk counts for a transfer.
func (d DiskLine) operations(t Transfer) float64 {
	if t.Request == 0 {
		return 0
	}
	return t.Bytes / t.Request * d.split(t.Request)
}

// split is how many operations the disk counts for one request of q bytes.
func (d DiskLine) split(q float64) float64 {
	u := d.OpBytes
	if u == 0 {
		u = defaultOpBytes
	}
	return math.Ceil(q / u)
}

// Mix returns φ for a device that reads and writes at the given rates alone, and at the other two when both run. All are
// bytes/s.
func Mix(read, write, bothRead, bothWrite float64) float64 {
	x, y := bothRead/read, bothWrite/write
	return clip((1-max(x, y))/min(x, y), 0, 1)
}

// tauLog is the disk seconds per byte that a reordered log costs: each byte is read and written once an epoch.
func (d DiskLine) tauLog() float64 {
	x, y := per(1, d.ReadBPS), per(1, d.WriteBPS)
	return max(max(x, y)+d.Mix*min(x, y), per(2, d.CombinedBPS))
}

// randomIOPS is how many reads a second the disk does, 0 if nothing is known to limit them.
func (d DiskLine) randomIOPS() float64 {
	switch {
	case d.ReadIOPS == 0:
		return d.CombinedIOPS
	case d.CombinedIOPS == 0:
		return d.ReadIOPS
	}
	return min(d.ReadIOPS, d.CombinedIOPS)
}

// SmallestBlock is the block below which operations, and no longer bytes, bind a reordered log: bandwidth divided by
// operations, and at least 128 KiB.
func (d DiskLine) SmallestBlock() float64 {
	least := float64(leastBlock)
	tau := d.tauLog()
	if tau == 0 {
		return least
	}
	return max(least, max(per(1, d.ReadIOPS), per(1, d.WriteIOPS), per(2, d.CombinedIOPS))/tau)
}

// per is the time that an amount takes at a rate, where a rate of 0 does not bind.
func per(amount, rate float64) float64 {
	if rate == 0 || amount == 0 {
		return 0
	}
	return amount / rate
}

func clip(x, least, most float64) float64 {
	return min(max(x, least), most)
}
