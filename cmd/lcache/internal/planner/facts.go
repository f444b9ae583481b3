// Package planner collects the facts that a plan is made from, says where each is from, and turns them into a report.
//
// Facts are the inputs of package plan, each with its provenance: given by a flag, read from a file that lcache doctor wrote,
// read from a running server, measured now, or assumed. Fields lists them by the names of their flags. Gather fills in the
// facts that have no flag, and Missing lists the ones still unknown. Report calls package plan and adds what-if tables.
// The formulas are in package plan; this package has none. Facts are not safe for concurrent use.
package planner

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"lcache/internal/plan"
	"lcache/internal/usage"
)

// Facts are the facts of a plan. From has the origin of each, by the name of its field.
type Facts struct {
	plan.Facts
	From map[string]string

	perSample map[string]float64 // rates given in samples/s
	perDay    float64            // rated drive writes per day
}

// Field is one fact: the name of its flag, and its description.
type Field struct {
	Name  string
	Kind  Kind
	Help  string
	Ways  string // the flags that give or measure it; "": the plan works without it
	where func(f *Facts) *float64
}

// Kind is how a fact is written.
type Kind string

// The kinds of facts. A rate may be "unlimited".
const (
	Number  Kind = "N"
	Size    Kind = "SIZE"     // 138GB, 512MiB
	Rate    Kind = "RATE"     // 500MB/s, 10Gbit/s
	RateOrN Kind = "RATE|N/s" // also 20000/s, in samples
)

// Fields are all facts that have a flag.
var Fields = []Field{
	{"samples", Number, "samples of the dataset", "--samples N, or --source SRC to list it", func(f *Facts) *float64 { return &f.Samples }},
	{"bytes", Size, "size of the dataset", "--bytes SIZE, or --source SRC to list it", func(f *Facts) *float64 { return &f.DatasetBytes }},
	{"largest", Size, "largest sample (default: the mean)", "", func(f *Facts) *float64 { return &f.LargestBytes }},
	{"stored-ratio", Number, "compressed size ÷ plain size", "", func(f *Facts) *float64 { return &f.StoredRatio }},
	{"batch-size", Number, "samples of one rank's batch", "--batch-size N", func(f *Facts) *float64 { return &f.Batch }},
	{"epochs", Number, "epochs of the training", "--epochs N", func(f *Facts) *float64 { return &f.Epochs }},
	{"left-out", Number, "share of samples that an epoch leaves out, 0 to 1", "", func(f *Facts) *float64 { return &f.LeftOut }},
	{"nodes", Number, "number of nodes in the training", "", func(f *Facts) *float64 { return &f.Nodes }},
	{"ranks", Number, "ranks on one node", "", func(f *Facts) *float64 { return &f.Ranks }},
	{"devices", Number, "devices of the cache on one node", "", func(f *Facts) *float64 { return &f.Devices }},
	{"budget", Size, "disk space for the cache on one node", "--budget SIZE", func(f *Facts) *float64 { return &f.CacheBytes }},
	{"memory", Size, "memory of the server on one node", "--memory", func(f *Facts) *float64 { return &f.MemoryBytes }},
	{"read-bw", Rate, "read throughput of the devices", "", func(f *Facts) *float64 { return &f.Device.ReadBPS }},
	{"write-bw", Rate, "write throughput of the devices", "", func(f *Facts) *float64 { return &f.Device.WriteBPS }},
	{"combined-bw", Rate, "limit of read and write throughput together, if there is one", "", func(f *Facts) *float64 { return &f.Device.CombinedBPS }},
	{"read-iops", Number, "reads per second", "", func(f *Facts) *float64 { return &f.Device.ReadIOPS }},
	{"write-iops", Number, "writes per second", "", func(f *Facts) *float64 { return &f.Device.WriteIOPS }},
	{"combined-iops", Number, "limit of reads and writes per second together, if there is one", "", func(f *Facts) *float64 { return &f.Device.CombinedIOPS }},
	{"op-size", Size, "largest request that counts as one operation", "", func(f *Facts) *float64 { return &f.Device.OpBytes }},
	{"mix", Number, "0: reads and writes have separate limits; 1: they share one", "", func(f *Facts) *float64 { return &f.Device.Mix }},
	{"queue-depth", Number, "reads in flight (default: 64)", "", func(f *Facts) *float64 { return &f.Device.QueueDepth }},
	{"burst", Number, "burst credit of the device, in seconds of its limits", "", func(f *Facts) *float64 { return &f.Device.Burst }},
	{"latency", Number, "seconds per read at that depth", "", func(f *Facts) *float64 { return &f.Device.Latency }},
	{"source-bw", Rate, "throughput of the source for all nodes together", "--source-bw RATE or --source-ops N, or --source SRC to measure it", func(f *Facts) *float64 { return &f.Source.BPS }},
	{"source-node-bw", Rate, "throughput of the source for one node", "", func(f *Facts) *float64 { return &f.Source.NodeBPS }},
	{"source-ops", Number, "files or objects per second for all nodes together", "", func(f *Facts) *float64 { return &f.Source.Ops }},
	{"network", Rate, "network throughput of one node, each way", "--network RATE", func(f *Facts) *float64 { return &f.NetworkBPS }},
	{"consumer", RateOrN, "throughput of one node's training loop when it never waits", "--consumer RATE or N/s (samples per second), or --cache DIR of a running job", func(f *Facts) *float64 { return &f.ConsumerBPS }},
	{"decode", RateOrN, "throughput of one node's decoding", "", func(f *Facts) *float64 { return &f.DecodeBPS }},
	{"file-open", Number, "seconds per file, to compare with plain files on the SSD", "", func(f *Facts) *float64 { return &f.FileOpen }},
	{"loader-workers", Number, "loader workers in that comparison", "", func(f *Facts) *float64 { return &f.Workers }},
}

// field finds a fact by its name.
func field(name string) (Field, error) {
	names := []string{"sample-size"}
	for _, f := range Fields {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	if near := usage.Nearest(name, names); near != "" {
		return Field{}, usage.Errorf("%s is not a fact of a plan: did you mean %s?", name, near)
	}
	return Field{}, usage.Errorf("%s is not a fact of a plan: the facts are %s", name, strings.Join(names, ", "))
}

// Set sets a fact as a flag does.
func (f *Facts) Set(name, text, from string) error {
	if name == "sample-size" { // the same bytes in samples of another size
		n, err := parse(Size, text)
		if err != nil || n < 1 {
			return usage.Errorf("sample-size %q: write a size, as in 16KB", text)
		}
		f.Samples = max(1, math.Round(f.DatasetBytes/n))
		f.LargestBytes = 0
		return nil
	}
	fd, err := field(name)
	if err != nil {
		return err
	}
	value, err := parse(fd.Kind, text)
	if err != nil {
		return usage.Errorf("%s %q: %v", name, text, err)
	}
	f.put(fd, value, from)
	if samples, ok := strings.CutSuffix(text, "/s"); fd.Kind == RateOrN && ok && isNumber(samples) {
		f.perSample[name] = value
	}
	return nil
}

// put sets a value. Package plan takes 0 as an unlimited rate.
func (f *Facts) put(fd Field, value float64, from string) {
	if f.From == nil {
		f.From, f.perSample = map[string]string{}, map[string]float64{}
	}
	delete(f.perSample, fd.Name)
	if math.IsInf(value, 1) {
		value, from = 0, from+", unlimited"
	}
	*fd.where(f) = value
	f.From[fd.Name] = from
}

// fill sets a value that nothing has set yet.
func (f *Facts) fill(name string, value float64, from string) {
	fd, err := field(name)
	if err != nil || f.From[name] != "" || !(value > 0) {
		return
	}
	f.put(fd, value, from)
}

// Clone returns facts that can be changed by themselves.
func (f *Facts) Clone() *Facts {
	other := *f
	other.From, other.perSample = map[string]string{}, map[string]float64{}
	for k, v := range f.From {
		other.From[k] = v
	}
	for k, v := range f.perSample {
		other.perSample[k] = v
	}
	return &other
}

// Model makes the model of the facts. Rates in samples become bytes now that the samples' size is known.
func (f *Facts) Model() (*plan.Model, error) {
	facts := f.Clone()
	facts.inBytes()
	facts.WearPerDay = f.perDay * f.CacheBytes
	m, err := plan.New(facts.Facts)
	if err != nil {
		return nil, usage.Errorf("these facts make no plan: %v", err)
	}
	return m, nil
}

// inBytes turns rates in samples into bytes, by the size that samples have now.
func (f *Facts) inBytes() {
	for name, samples := range f.perSample {
		fd, _ := field(name)
		*fd.where(f) = samples * f.DatasetBytes / max(1, f.Samples)
	}
	clear(f.perSample)
}

// MissingFact is a fact that a plan needs and does not have.
type MissingFact struct{ Name, Ways string }

// Missing returns the facts that are not known, and the ways to give or measure each.
func (f *Facts) Missing() (missing []MissingFact) {
	for _, fd := range Fields {
		switch {
		case fd.Ways == "" || f.From[fd.Name] != "":
		case fd.Name == "source-bw" && (f.From["source-ops"] != "" || f.From["source-node-bw"] != ""):
		case fd.Name == "network" && f.Nodes <= 1:
		default:
			missing = append(missing, MissingFact{fd.Name, fd.Ways})
		}
	}
	if !f.knowsDevice() {
		missing = append(missing, MissingFact{"disk", "--read-bw, --write-bw and --read-iops; or --combined-bw and --combined-iops; or --facts FILE, from lcache doctor --cache DIR --save FILE"})
	}
	return missing
}

func (f *Facts) knowsDevice() bool {
	bandwidth := f.From["read-bw"] != "" && f.From["write-bw"] != "" || f.From["combined-bw"] != ""
	return bandwidth && (f.From["read-iops"] != "" || f.From["combined-iops"] != "")
}

// Endurance sets the write rating of the drives, in the form of ParseEndurance. A total is spread over the budget.
func (f *Facts) Endurance(text string) error {
	e, err := ParseEndurance(text)
	if err != nil {
		return err
	}
	if e.Daily == 0 && f.CacheBytes <= 0 {
		return usage.Errorf("endurance %s needs --budget, to say how many drive writes that is", text)
	}
	f.perDay = e.Daily
	if e.Daily == 0 {
		f.perDay = e.PerDay(0) / f.CacheBytes
	}
	return nil
}

var bits = regexp.MustCompile(`^([0-9.]+)\s*([KMGT])b(it)?$`)

// parse reads a value. An unlimited rate is infinite.
func parse(kind Kind, text string) (float64, error) {
	text = strings.TrimSpace(text)
	switch kind {
	case Rate, RateOrN:
		if text == "unlimited" {
			return math.Inf(1), nil
		}
		per, ok := strings.CutSuffix(text, "/s")
		if kind == RateOrN && ok && isNumber(per) {
			return strconv.ParseFloat(strings.ReplaceAll(per, ",", ""), 64)
		}
		if m := bits.FindStringSubmatch(per); m != nil {
			n, err := strconv.ParseFloat(m[1], 64)
			return n * map[string]float64{"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[m[2]] / 8, err
		}
		n, err := parse(Size, per)
		if err != nil {
			return 0, fmt.Errorf("write bytes a second, as in 500MB/s or 10Gbit/s%s, or unlimited", map[bool]string{true: ", or samples a second, as in 20000/s"}[kind == RateOrN])
		}
		return n, nil
	case Size:
		n, err := humanize.ParseBytes(text)
		if err != nil {
			return 0, fmt.Errorf("write a size, as in 138GB or 512MiB")
		}
		return float64(n), nil
	}
	if text == "unlimited" {
		return math.Inf(1), nil
	}
	if !isNumber(text) {
		return 0, fmt.Errorf("write a number")
	}
	return strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
}

func isNumber(text string) bool {
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	return err == nil && n >= 0 && !math.IsInf(n, 0) && !math.IsNaN(n)
}
