package doctor

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Device has the measured rates of a disk, in bytes or operations a second.
type Device struct {
	When      time.Time `json:"when"`
	Seconds   float64   `json:"seconds"` // that the measurement took
	FileBytes int64     `json:"file_bytes"`
	Engine    string    `json:"engine"`
	Direct    bool      `json:"direct"`

	Read      float64 `json:"read_bytes_per_second"`       // 1 MiB in order, 16 in flight
	Write     float64 `json:"write_bytes_per_second"`      // the same
	BothRead  float64 `json:"both_read_bytes_per_second"`  // of reads, while the same is written
	BothWrite float64 `json:"both_write_bytes_per_second"` // of writes, while the same is read
	IOPS      float64 `json:"read_iops"`                   // 4 KiB at random, 32 in flight
	WriteIOPS float64 `json:"write_iops,omitempty"`        // the same, written; 0: not measured
	BothIOPS  float64 `json:"both_iops,omitempty"`         // of reads and writes together, 16 of each in flight; 0: not measured
	Random    float64 `json:"random_bytes_per_second"`     // 100 KiB at random, 32 in flight; 0: not measured
	Latency   float64 `json:"latency_seconds"`             // of one read of 4 KiB alone, median

	OpBytes     int     `json:"op_bytes"`               // the largest read that counts as one operation
	OpMeasured  bool    `json:"op_bytes_measured"`      // false: OpBytes is assumed, because bandwidth was the limit
	Mix         float64 `json:"mix"`                    // 0: reading and writing have separate limits; 1: they share one
	CombinedCap float64 `json:"combined_cap,omitempty"` // limit of reads and writes together, if it is that of one alone; 0: none
	CombinedOps float64 `json:"combined_ops,omitempty"` // the same of operations; 0: none
	How         string  `json:"how"`                    // for people
}

// The sizes that are measured. randomBytes is a multiple of every alignment in use.
const (
	orderedBytes = 1 << 20
	pageSize     = 4 << 10
	randomBytes  = 100 << 10
	assumedOp    = 256 << 10
)

// opSizes are tried in turn for Device.OpBytes.
var opSizes = []int{16 << 10, 64 << 10, 256 << 10}

// Device measures all rates, in under 20 s with the fill. It calls progress when a stage begins.
func (d *Disk) Device(ctx context.Context, progress func(stage string)) (*Device, error) {
	return d.device(ctx, 1, progress)
}

// device is Device with each step shortened to a part of its time.
func (d *Disk) device(ctx context.Context, part float64, progress func(stage string)) (*Device, error) {
	began := time.Now()
	dev := &Device{When: began.Round(time.Second), FileBytes: d.size,
		How: fmt.Sprintf("a file of %d MiB, O_DIRECT: 1 MiB in order at depth 16; 4 KiB and 100 KiB at random at depth 32; 1.5 to 2 s each", d.size>>20)}
	dev.Engine, dev.Direct = d.Engine()
	random := func(size int) Stream { return Stream{Size: size, Depth: 32, Random: true} }
	rates := map[int]float64{}
	steps := append(d.basics(dev, Stream{Size: orderedBytes, Depth: 16}, 2*time.Second, 1500*time.Millisecond),
		step{"random reads", 2 * time.Second, []Stream{random(randomBytes)}, func(r []Rate) { dev.Random = r[0].BytesPerSecond() }},
		step{"single reads", 500 * time.Millisecond, []Stream{{Size: pageSize, Depth: 1, Random: true}}, func(r []Rate) { dev.Latency = r[0].Median.Seconds() }},
	)
	for _, size := range opSizes {
		steps = append(steps, step{"random reads", 800 * time.Millisecond, []Stream{random(size)}, func(r []Rate) { rates[size] = r[0].OpsPerSecond() }})
	}
	for _, s := range steps {
		progress(s.stage)
		r, err := d.Run(ctx, time.Duration(part*float64(s.length)), s.streams...)
		if err != nil {
			return nil, err
		}
		s.note(r)
	}
	dev.derive(rates)
	dev.Seconds = time.Since(began).Seconds()
	return dev, nil
}

// step is one measurement of a device.
type step struct {
	stage   string
	length  time.Duration
	streams []Stream
	note    func(r []Rate)
}

// basics are the steps that a choice of a layout needs: bandwidth and operations, of reads, of writes, and of both. ordered is what reads in order.
func (d *Disk) basics(dev *Device, ordered Stream, bandwidth, operations time.Duration) []step {
	writing := ordered
	writing.Write = true
	reads, writes := Stream{Size: pageSize, Depth: 32, Random: true}, Stream{Size: pageSize, Depth: 32, Random: true, Write: true}
	half := func(s Stream) Stream {
		s.Depth /= 2
		return s
	}
	return []step{
		{"writing", bandwidth, []Stream{writing}, func(r []Rate) { dev.Write = r[0].BytesPerSecond() }},
		{"reading", bandwidth, []Stream{ordered}, func(r []Rate) { dev.Read = r[0].BytesPerSecond() }},
		{"reading and writing", bandwidth, []Stream{ordered, writing},
			func(r []Rate) { dev.BothRead, dev.BothWrite = r[0].BytesPerSecond(), r[1].BytesPerSecond() }},
		{"random reads", operations, []Stream{reads}, func(r []Rate) { dev.IOPS = r[0].OpsPerSecond() }},
		{"random writes", operations, []Stream{writes}, func(r []Rate) { dev.WriteIOPS = r[0].OpsPerSecond() }},
		{"random reads and writes", operations, []Stream{half(reads), half(writes)}, func(r []Rate) { dev.BothIOPS = r[0].OpsPerSecond() + r[1].OpsPerSecond() }},
	}
}

// derive computes the figures that follow from the rates. ops has operations a second by size.
func (dev *Device) derive(ops map[int]float64) {
	dev.OpBytes, dev.OpMeasured = opSize(dev.IOPS, dev.Read, ops)
	dev.Mix = mix(dev.Read, dev.Write, dev.BothRead, dev.BothWrite)
	dev.CombinedCap = together(dev.Read, dev.Write, dev.BothRead+dev.BothWrite)
	dev.CombinedOps = together(dev.IOPS, dev.WriteIOPS, dev.BothIOPS)
}

// together returns the limit that reads and writes share: their sum when measured together, if that is within a tenth of the larger one alone. Otherwise it returns 0.
func together(read, write, both float64) float64 {
	if alone := max(read, write); math.Abs(both-alone) <= alone/10 {
		return both
	}
	return 0
}

// opSize returns the largest read that is as fast, in operations a second, as a small one. Where larger reads are slower because of the
// bandwidth, or where the operations were not the limit, the size can't be measured, and opSize assumes 256 KiB.
func opSize(iops, bandwidth float64, ops map[int]float64) (bytes int, measured bool) {
	bytes = pageSize
	for _, size := range opSizes {
		if ops[size] < 0.9*iops {
			if ops[size]*float64(size) >= 0.85*bandwidth || iops*float64(bytes) < 0.9*bandwidth {
				return assumedOp, false
			}
			break
		}
		bytes = size
	}
	return bytes, true
}

// mix returns how much of one stream's time is added to the other's: 0 for separate limits, 1 for one shared limit.
func mix(read, write, bothRead, bothWrite float64) float64 {
	if read <= 0 || write <= 0 {
		return 1
	}
	x, y := bothRead/read, bothWrite/write
	if min(x, y) <= 0 {
		return 1
	}
	return min(max((1-max(x, y))/min(x, y), 0), 1)
}
