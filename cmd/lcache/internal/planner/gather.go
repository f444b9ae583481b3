package planner

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/status"
	"lcache/source"
)

// Gathering is where facts may come from that no flag gives, in the order in which they are asked.
type Gathering struct {
	File     string   // saved by lcache doctor; "off": nothing is measured
	Dirs     []string // of a cache: its server is asked, if one runs; else its device is measured
	Source   string   // listed, and read for a time
	Remote   source.Remote
	Stream   bool // as of ingest
	Records  source.RecordFlags
	Time     time.Duration
	Progress func(stage string)
	Now      time.Time
}

// Gather fills in unknown facts, and assumes usual values for some.
func (f *Facts) Gather(ctx context.Context, g Gathering) error {
	if g.Progress == nil {
		g.Progress = func(string) {}
	}
	if g.File != "" && g.File != "off" {
		report, err := readReport(g.File)
		if err != nil {
			return err
		}
		f.fromReport(report.Facts, g.Now)
	}
	if len(g.Dirs) > 0 {
		f.fromServer(g.Dirs)
	}
	if g.File != "off" {
		if err := f.measure(ctx, g); err != nil {
			return err
		}
	}
	f.assume()
	if len(g.Dirs) > 0 || g.Source != "" {
		f.Sizer = serverSizes
	}
	return nil
}

// readReport reads what lcache doctor saved.
func readReport(path string) (*doctor.Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the facts: %w", err)
	}
	var report doctor.Report
	if err := jsonbytes.Unmarshal(text, &report); err != nil || report.Facts == nil {
		return nil, errcode.Errorf(errcode.InputFile, "%s holds no facts of a machine: make it with lcache doctor --cache DIR --save FILE", path)
	}
	return &report, nil
}

// fromReport takes the measurements of doctor, summed over several devices.
func (f *Facts) fromReport(d *doctor.Facts, now time.Time) {
	seen, devices := map[doctor.Device]bool{}, 0.0
	var sum doctor.Device
	free, when := uint64(0), d.When
	for _, p := range d.Places {
		if p.Device == nil || seen[*p.Device] {
			continue
		}
		dev := *p.Device
		seen[dev] = true
		devices++
		sum.Read, sum.Write, sum.IOPS, sum.CombinedCap = sum.Read+dev.Read, sum.Write+dev.Write, sum.IOPS+dev.IOPS, sum.CombinedCap+dev.CombinedCap
		sum.WriteIOPS, sum.CombinedOps = sum.WriteIOPS+dev.WriteIOPS, sum.CombinedOps+dev.CombinedOps
		sum.Mix, sum.OpBytes, when = max(sum.Mix, dev.Mix), dev.OpBytes, dev.When
		free += p.Free - min(p.Free, p.Reserve)
	}
	if devices > 0 && !f.knowsDevice() {
		from := measured(when, now)
		f.fill("devices", devices, from)
		f.fill("read-bw", sum.Read, from)
		f.fill("write-bw", sum.Write, from)
		f.fill("read-iops", sum.IOPS, from)
		f.fill("write-iops", sum.WriteIOPS, from)
		f.fill("combined-iops", sum.CombinedOps, from)
		f.fill("op-size", float64(sum.OpBytes), from)
		if sum.CombinedCap > 0 {
			f.fill("combined-bw", sum.CombinedCap, from)
		} else {
			f.fill("mix", sum.Mix, from)
		}
		f.fill("budget", float64(free), "the free space, "+from)
	}
	f.fill("memory", float64(d.Memory.Usable())/4, "a quarter of the memory, "+measured(d.When, now))
	if r := d.Reading; r != nil {
		f.fromReading(r, measured(d.When, now))
	}
}

// fromReading takes the measured rates of a source. The rate with many readers counts: read-ahead uses
// many.
func (f *Facts) fromReading(r *doctor.Reading, from string) {
	f.fill("samples", float64(r.Files), "listed from the source")
	f.fill("bytes", float64(r.Bytes), "listed from the source")
	if f.From["source-bw"] != "" || f.From["source-ops"] != "" || len(r.Readers) == 0 {
		return
	}
	best := r.Readers[len(r.Readers)-1]
	f.fill("source-bw", best.BytesPerSecond(), from)
}

// fromServer asks the server of a cache, if one runs, what its job is and how fast the training takes samples when nothing
// holds it up.
func (f *Facts) fromServer(dirs []string) {
	client, err := attach.DialFound(attach.SocketOf(dirs), "lcache plan")
	if err != nil {
		return // not an error: the facts come from elsewhere
	}
	defer client.Close()
	if _, status, err := client.Status(); err == nil {
		f.fromStatus(status)
	}
}

// leastDelivered is the time that a job must have run for its rates to count.
const leastDelivered = 10.0

func (f *Facts) fromStatus(s status.Document) {
	const from = "the running server"
	f.fill("budget", float64(s.Cache.BudgetBytes), from)
	f.fill("memory", float64(s.MemoryLimitBytes), from)
	for _, j := range s.Jobs {
		f.fill("samples", float64(j.Samples), from)
		f.fill("bytes", float64(j.DatasetBytes), from)
		f.fill("epochs", float64(j.Epochs), from)
		f.fill("ranks", float64(len(j.Ranks)), from)
		if j.Batches > 0 && len(j.Ranks) > 0 {
			f.fill("batch-size", math.Ceil(float64(j.Samples)/float64(j.Batches*len(j.Ranks))), from)
		}
		if busy := s.UptimeSeconds - j.StallSeconds; busy > leastDelivered && j.StallSeconds >= 0 {
			f.fill("consumer", float64(j.BytesDelivered)/busy, from+", its deliveries while the training did not wait")
		}
	}
}

// measure measures the facts that are still unknown and can be measured here.
func (f *Facts) measure(ctx context.Context, g Gathering) error {
	if g.Source != "" && (f.From["samples"] == "" || f.From["bytes"] == "" || f.From["source-bw"] == "" && f.From["source-ops"] == "") {
		r, err := doctor.Read(ctx, doctor.ReadOptions{Source: g.Source, Remote: g.Remote, Stream: g.Stream, Records: g.Records, Time: g.Time, Progress: g.Progress})
		if err != nil {
			return err
		}
		f.fromReading(r, "measured now")
	}
	if len(g.Dirs) > 0 && !f.knowsDevice() {
		d, err := doctor.Look(ctx, doctor.Options{Dirs: g.Dirs, Progress: g.Progress})
		if err != nil {
			return err
		}
		f.fromReport(d, d.When)
	}
	return nil
}

// assume takes the usual value of what does not decide, and says so.
func (f *Facts) assume() {
	f.fill("nodes", 1, "assumed")
	f.fill("ranks", 1, "assumed")
	f.fill("devices", 1, "assumed")
	f.fill("memory", 2<<30, "assumed")
	if f.SideBytes == 0 {
		f.SideBytes = 64 << 20
	}
	if f.From["read-iops"] != "" || f.From["combined-iops"] != "" {
		f.fill("op-size", 256<<10, "assumed")
	}
}

// measured says when something was measured.
func measured(when, now time.Time) string {
	switch age := now.Sub(when); {
	case age < time.Minute:
		return "measured now"
	case age < 2*time.Hour:
		return fmt.Sprintf("measured %.0f min ago", age.Minutes())
	case age < 48*time.Hour:
		return fmt.Sprintf("measured %.0f h ago", age.Hours())
	default:
		return fmt.Sprintf("measured %.0f days ago", age.Hours()/24)
	}
}
