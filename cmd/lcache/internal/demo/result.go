package demo

import (
	"fmt"
	"strings"

	"lcache/internal/serve/status"
	"lcache/internal/store/ingest"
	"lcache/internal/units"
)

// A Result has the figures of a demo.
type Result struct {
	Source string `json:"source"`
	Epochs int    `json:"epochs"`
	World  int    `json:"world"`
	Full   Pass   `json:"full"`
	Half   *Pass  `json:"half,omitempty"` // nil: the source is too small to be halved

	Plain *PlainFiles `json:"plain_files"`
}

// A Pass is one run over all epochs with one budget.
type Pass struct {
	Name   string         `json:"name"`
	Ingest *ingest.Report `json:"ingest"`
	Epochs []Epoch        `json:"epochs"`
	Wrong  []string       `json:"wrong"` // the first differences that ranks saw, in words
	Wrongs int            `json:"wrongs"`

	plain *PlainFiles // of the pass with all of the space
}

// An Epoch has the figures of the ranks for one epoch, and the change of the server's counters in it. The server loads some segments of the
// next epoch ahead, so bytes near an epoch's end may count for the next epoch. The sums are exact.
type Epoch struct {
	Epoch      int     `json:"epoch"`
	Samples    int64   `json:"samples"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"` // with reading every file again and comparing it
	Hits       int64   `json:"hits"`
	Misses     int64   `json:"misses"`
	LogReads   int64   `json:"log_reads"`
	LogRead    int64   `json:"log_read_bytes"`
	LogWritten int64   `json:"log_write_bytes"`
	Source     int64   `json:"source_bytes"`
	Stalled    float64 `json:"stall_seconds"`
}

func (p *Pass) add(epoch int, seconds float64, answers []seen, before, after status.Document) {
	e := Epoch{Epoch: epoch, Seconds: seconds}
	for _, a := range answers {
		e.Samples += int64(a.Samples)
		e.Bytes += a.Bytes
		p.Wrong = append(p.Wrong, a.Wrong...)
		p.Wrongs += a.Wrongs
	}
	b, a := before.Totals, after.Totals
	e.Hits, e.Misses = a.Hits-b.Hits, a.Misses-b.Misses
	e.LogReads, e.LogRead = a.LogReadOps-b.LogReadOps, a.LogReadBytes-b.LogReadBytes
	e.LogWritten, e.Source = a.LogWriteBytes-b.LogWriteBytes, a.SourceBytes-b.SourceBytes
	e.Stalled = a.StallSeconds - b.StallSeconds
	p.Epochs = append(p.Epochs, e)
}

// Sum adds up all epochs; seconds and samples too.
func (p *Pass) Sum() (s Epoch) {
	for _, e := range p.Epochs {
		s.Samples += e.Samples
		s.Bytes += e.Bytes
		s.Seconds += e.Seconds
		s.Hits += e.Hits
		s.Misses += e.Misses
		s.LogReads += e.LogReads
		s.LogRead += e.LogRead
		s.LogWritten += e.LogWritten
		s.Source += e.Source
		s.Stalled += e.Stalled
	}
	return s
}

// A Check is one thing that must hold.
type Check struct {
	Name string
	Text string
	Good bool
}

// Checks returns everything that the demo checks, whether it held or not.
func (r *Result) Checks() []Check {
	full, want := r.Full.Sum(), int64(r.Full.Ingest.Samples*r.Epochs)
	samples, wrongs, differs, complete := full.Samples, r.Full.Wrongs, len(r.Full.Wrong) > 0, full.Samples >= want
	if r.Half != nil {
		half := r.Half.Sum()
		samples, wrongs = samples+half.Samples, wrongs+r.Half.Wrongs
		differs, complete = differs || len(r.Half.Wrong) > 0, complete && half.Samples >= want
	}
	differs = differs || wrongs > 0
	exact := fmt.Sprintf("%s in the order of torch's DistributedSampler, every byte equal to its file's", units.Plural(samples, "sample", "samples"))
	if differs {
		exact = fmt.Sprintf("%s, see the lines with ! below", units.Plural(int64(max(wrongs, 1)), "difference", "differences"))
	}
	checks := []Check{
		{"exact", exact, !differs && complete},
		{"source", fmt.Sprintf("read once, by ingest: %s; then %s and %s from the source in %s", units.Bytes(r.Full.Ingest.ReadBytes),
			units.Plural(full.Misses, "miss", "misses"), units.Bytes(full.Source), units.Plural(int64(r.Epochs), "epoch", "epochs")),
			full.Misses == 0 && full.Source == 0 && r.Full.Ingest.ReadBytes == r.Full.Ingest.Bytes},
		{"log", fmt.Sprintf("a full shuffle, read in pieces of %s on average; the mean sample is %s", meanText(full), meanSample(r.Full.Ingest)),
			full.LogReads > 0 && full.LogRead >= r.fromDisk(r.Epochs) && full.LogWritten >= r.fromDisk(r.Epochs-1)},
	}
	if r.Half != nil {
		checks = append(checks, r.checkHalf())
	}
	if r.Plain != nil {
		checks = append(checks, r.Plain.check())
	}
	return checks
}

func (r *Result) checkHalf() Check {
	half, h, dataset := r.Half.Sum(), r.Half.Ingest, float64(r.Full.Ingest.Bytes)
	c, fits := float64(h.BudgetBytes)/dataset, float64(h.BudgetBytes-h.SlackBytes)/dataset
	// The ratio is one of bytes, as the budget is: a few large files would shift a ratio of samples.
	ratio := 1 - float64(half.Source)/max(float64(half.Bytes), 1)
	// The index is part of the budget too, and samples and blocks are kept whole.
	least := fits - float64(h.MetadataBytes+h.BlockBytes)/dataset - 1/float64(max(h.Samples, 1))
	return Check{"half", fmt.Sprintf("hit ratio %.1f %% of the bytes; %.1f %% fit, because the log needs working space; the budget is %.1f %% of the dataset, the most that any policy can reach",
		100*ratio, 100*fits, 100*c), half.Hits+half.Misses > 0 && ratio >= 0.98*least} // without counters nothing is known
}

// fromDisk returns the least number of bytes that some epochs must read from the log, or write to it: all of the dataset, but for the bytes
// that are never on disk. These are the last block of each segment, and the bytes in shared memory when an epoch begins.
func (r *Result) fromDisk(epochs int) int64 {
	i := r.Full.Ingest
	each := i.Bytes*95/100 - int64(i.Segments+3)*i.BlockBytes - 3*i.SegmentBytes
	return max(each, 0) * int64(epochs)
}

func meanText(e Epoch) string {
	if e.LogReads == 0 {
		return "–"
	}
	return units.Binary(e.LogRead / e.LogReads)
}

func meanSample(r *ingest.Report) string {
	if r.Samples == 0 {
		return "–"
	}
	return units.Binary(r.Bytes / int64(r.Samples))
}

// Failed names the checks that did not hold.
func (r *Result) Failed() []string {
	var names []string
	for _, c := range r.Checks() {
		if !c.Good {
			names = append(names, strings.TrimSpace(c.Name)+": "+c.Text)
		}
	}
	return names
}
