package plan

import (
	"fmt"
	"math"
	"reflect"
	"strings"
)

// Facts are the inputs of a plan, in bytes and bytes/s, samples, and seconds. A rate of 0 is unlimited, and other fields that are 0 take the default in
// their comment. All except the dataset and the source are per node.
type Facts struct {
	DatasetBytes float64 `json:"dataset_bytes"`            // S
	Samples      float64 `json:"samples"`                  // F
	LargestBytes float64 `json:"largest_bytes,omitempty"`  // the largest sample; 0 means the mean
	StoredRatio  float64 `json:"stored_ratio,omitempty"`   // compressed ÷ uncompressed bytes, with lz4; 0 means 1
	Batch        float64 `json:"batch"`                    // samples of one rank's mini-batch
	Epochs       float64 `json:"epochs"`                   // E
	LeftOut      float64 `json:"left_out,omitempty"`       // the share of the samples that an epoch leaves out
	Nodes        float64 `json:"nodes,omitempty"`          // n; 0 means 1
	Ranks        float64 `json:"ranks,omitempty"`          // on this node; 0 means 1
	WithoutPeers bool    `json:"without_peers,omitempty"`  // nodes can't read from each other
	Devices      float64 `json:"devices,omitempty"`        // 0 means 1
	CacheBytes   float64 `json:"cache_bytes"`              // D: the budget
	MemoryBytes  float64 `json:"memory_bytes,omitempty"`   // the limit; 0 means 2 GiB
	BlockBytes   float64 `json:"block_bytes,omitempty"`    // W to begin with; 0 means 1 MiB
	SideBytes    float64 `json:"side_bytes,omitempty"`     // X: memory for requests by index
	PeerBytes    float64 `json:"peer_bytes,omitempty"`     // P: memory for samples between peers; 0 means 64 MiB
	FromLog      bool    `json:"from_log,omitempty"`       // the static layout reads a Logfile that was left in place
	Prefill      bool    `json:"prefill,omitempty"`        // the log is filled before training begins
	Admit        float64 `json:"admit,omitempty"`          // the largest admitted share; 0 means all that fits
	AsHeld       bool    `json:"as_held,omitempty"`        // the choice between layouts uses the admitted share, and considers no smaller one
	ConsumerBPS  float64 `json:"consumer_bps,omitempty"`   // speed of the training loop, in compressed bytes/s
	DecodeBPS    float64 `json:"decode_bps,omitempty"`     // decoding speed of the CPU workers, in compressed bytes/s
	NetworkBPS   float64 `json:"network_bps,omitempty"`    // in each direction
	Workers      float64 `json:"loader_workers,omitempty"` // of a loader that reads files; 0 means 8
	FileOpen     float64 `json:"file_open_s,omitempty"`    // seconds to open and read one file
	WearPerDay   float64 `json:"wear_per_day,omitempty"`   // bytes that the drives are rated for per day; 0 means no limit

	Sizer Sizer `json:"-"` // sizes Log and Static on one node as lcache does; nil: the formulas of this package

	Device DiskLine `json:"device"`
	Source Source   `json:"source"`
}

// Sizer returns the memory and disk space of a log, or of the static layout, for facts. If fits is false, the sizes
// are the minimum memory.
type Sizer func(f Facts, inPlace bool) (z Sizes, sp Space, fits bool)

// Source describes the speed of the source.
type Source struct {
	BPS     float64 `json:"bps,omitempty"`      // to all nodes together
	NodeBPS float64 `json:"node_bps,omitempty"` // to one node
	Ops     float64 `json:"ops,omitempty"`      // samples/s, to all nodes together
}

// largest is the largest accepted number. Sums of larger numbers would lose precision.
const largest = 1e24

// check returns an error for the first invalid fact, with its JSON name.
func (f Facts) check() error {
	if err := checkNumbers(reflect.ValueOf(f), ""); err != nil {
		return err
	}
	for _, must := range []struct {
		name          string
		value, lo, hi float64
	}{
		{"dataset_bytes", f.DatasetBytes, 1, largest},
		{"samples", f.Samples, 1, f.DatasetBytes},
		{"batch", f.Batch, 1, largest},
		{"epochs", f.Epochs, 1, 1e12},
		{"nodes", f.Nodes, 0, 1e9},
		{"ranks", f.Ranks, 0, 1e6},
		{"devices", f.Devices, 0, 1e6},
		{"stored_ratio", f.StoredRatio, 0, 16},
		{"left_out", f.LeftOut, 0, 1},
		{"admit", f.Admit, 0, 1},
		{"device.mix", f.Device.Mix, 0, 1},
	} {
		if must.value < must.lo || must.value > must.hi {
			return fmt.Errorf("%s is %g, and must lie between %g and %g", must.name, must.value, must.lo, must.hi)
		}
	}
	if f.BlockBytes != 0 && f.BlockBytes < 4096 {
		return fmt.Errorf("block_bytes is %g, and must be at least 4096", f.BlockBytes)
	}
	return nil
}

// checkNumbers returns an error if a float of a struct is negative, infinite, above largest, or NaN.
func checkNumbers(v reflect.Value, prefix string) error {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch field := v.Field(i); field.Kind() {
		case reflect.Struct:
			if err := checkNumbers(field, prefix+name+"."); err != nil {
				return err
			}
		case reflect.Float64:
			if x := field.Float(); math.IsNaN(x) || x < 0 || x > largest {
				return fmt.Errorf("%s%s is %g, and must lie between 0 and %g", prefix, name, x, largest)
			}
		}
	}
	return nil
}

// withDefaults replaces zeros by their defaults.
func (f Facts) withDefaults() Facts {
	set := func(field *float64, to float64) {
		if *field == 0 {
			*field = to
		}
	}
	set(&f.LargestBytes, f.DatasetBytes/f.Samples)
	set(&f.StoredRatio, 1)
	set(&f.Nodes, 1)
	set(&f.Ranks, 1)
	set(&f.Devices, 1)
	set(&f.MemoryBytes, 2<<30)
	set(&f.BlockBytes, defaultBlock)
	set(&f.PeerBytes, 64<<20)
	set(&f.Admit, 1)
	set(&f.Workers, 8)
	set(&f.Device.OpBytes, defaultOpBytes)
	set(&f.Device.QueueDepth, 64)
	return f
}
