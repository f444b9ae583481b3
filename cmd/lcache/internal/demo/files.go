package demo

import (
	"context"
	"fmt"
	"strings"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/units"
)

// The ways to read, as the script knows them.
const (
	coldFiles  = "cold files" // dropped from the page cache before
	warmFiles  = "files"
	fromLcache = "lcache"
)

// fileThreads is the number of files that a rank reads at once in the faster of the two cold readings.
const fileThreads = 16

// PlainFiles compares lcache with plain files: the same samples in the same shuffled order.
type PlainFiles struct {
	Fits     bool      `json:"fits_in_memory"` // half of the free memory holds all files, as the page cache would
	Readings []Reading `json:"readings"`       // the last one is lcache's
	Wrong    []string  `json:"wrong"`          // readings that had other bytes than lcache's, in words
}

// A Reading is timed, by all ranks at once, and compares no files. It ends after some seconds, even in the middle of an epoch.
type Reading struct {
	How     string  `json:"how"` // cold files, files, lcache
	Epochs  int     `json:"epochs"`
	Threads int     `json:"threads"` // of each rank
	Samples int64   `json:"samples"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`    // of the slowest rank
	Disk    int64   `json:"disk_bytes"` // read from disks and not from memory; -1: unknown

	crcs [][]uint32 // of each rank, batch by batch
}

// timed is the answer of a rank for a Reading.
type timed struct {
	Samples, Bytes int64
	Seconds        float64
	Disk           *int64   // nil: unknown
	CRCs           []uint32 // of an epoch's bytes up to the end of each batch
}

// readPlain times cold files, then files from the page cache if they fit there, then lcache. It reads epochs that follow the checked ones: one
// of files, and as many of lcache's as were checked.
func (d *demo) readPlain(ctx context.Context, ranks []*rank, status *attach.Client, bytes int64) (*PlainFiles, error) {
	facts, err := doctor.Look(ctx, doctor.Options{NoDevice: true})
	if err != nil {
		return nil, err
	}
	p := &PlainFiles{
		Fits:     uint64(bytes) <= min(facts.Memory.Available, facts.Memory.Usable())/2,
		Readings: []Reading{{How: coldFiles, Epochs: 1, Threads: 1}, {How: coldFiles, Epochs: 1, Threads: fileThreads}},
	}
	if p.Fits {
		p.Readings = append(p.Readings, Reading{How: warmFiles, Epochs: 1, Threads: 1})
	}
	p.Readings = append(p.Readings, Reading{How: fromLcache, Epochs: d.o.Epochs, Threads: 1})
	for i := range p.Readings {
		r := &p.Readings[i]
		if err := r.measure(ranks, status, d.o.Epochs); err != nil {
			return nil, fmt.Errorf("time %s: %w", r.Name(), err)
		}
		d.o.Progress(cache.Progress{Stage: "timing", Done: int64(i + 1), Total: int64(len(p.Readings)), Unit: "readings"})
	}
	p.compare()
	return p, nil
}

// measure lets all ranks read from the given epoch on.
func (r *Reading) measure(ranks []*rank, status *attach.Client, first int) error {
	request, err := jsonbytes.Marshal(map[string]any{"time": r.How, "epochs": []int{first, first + r.Epochs}, "threads": r.Threads})
	if err != nil {
		return fmt.Errorf("write a request: %w", err)
	}
	_, before, err := status.Status()
	if err != nil {
		return err
	}
	answers, err := askRanks[timed](ranks, string(request))
	if err != nil {
		return err
	}
	_, after, err := status.Status()
	if err != nil {
		return err
	}
	r.add(answers)
	if r.How == fromLcache {
		r.Disk = fromServer(before, after)
	}
	return nil
}

func (r *Reading) add(answers []timed) {
	for _, a := range answers {
		r.Samples += a.Samples
		r.Bytes += a.Bytes
		r.Seconds = max(r.Seconds, a.Seconds)
		r.crcs = append(r.crcs, a.CRCs)
		if a.Disk == nil || r.Disk < 0 {
			r.Disk = -1
			continue
		}
		r.Disk += *a.Disk
	}
}

// fromServer returns the bytes that a server read from disks between two status documents, or -1: without O_DIRECT some of the bytes may have
// come from the page cache.
func fromServer(before, after status.Document) int64 {
	if !after.Direct || len(before.Jobs) == 0 || len(after.Jobs) == 0 {
		return -1
	}
	b, a := before.Totals, after.Totals
	return a.LogReadBytes - b.LogReadBytes + a.SourceBytes - b.SourceBytes
}

// compare compares the bytes of each reading of files with the bytes from lcache, batch by batch, as far as both readings went.
func (p *PlainFiles) compare() {
	last := p.Readings[len(p.Readings)-1]
	for _, r := range p.Readings[:len(p.Readings)-1] {
		for rank, crcs := range r.crcs {
			n := min(len(crcs), len(last.crcs[rank]))
			if n == 0 {
				p.Wrong = append(p.Wrong, fmt.Sprintf("%s: rank %d has no whole batch to compare", r.Name(), rank))
			}
			for i := range n {
				if crcs[i] != last.crcs[rank][i] {
					p.Wrong = append(p.Wrong, fmt.Sprintf("%s: rank %d, batch %d: lcache had other bytes", r.Name(), rank, i))
					break
				}
			}
		}
	}
}

// Name is "cold files, 16 threads a rank", "lcache, 4 epochs".
func (r *Reading) Name() string {
	threads := units.Plural(int64(r.Threads), "thread a rank", "threads a rank")
	switch r.How {
	case fromLcache:
		return "lcache, " + units.Plural(int64(r.Epochs), "epoch", "epochs")
	case warmFiles:
		return "files in memory, " + threads
	}
	return r.How + ", " + threads
}

func (r *Reading) speed() float64 { return float64(r.Samples) / max(r.Seconds, 1e-9) }

// check compares the speeds in words. Only other bytes are a failure; speed is none.
func (p *PlainFiles) check() Check {
	c := Check{Name: "plain", Good: len(p.Wrong) == 0}
	if !c.Good {
		c.Text = fmt.Sprintf("%s, see the lines with ! below", units.Plural(int64(len(p.Wrong)), "difference", "differences"))
		return c
	}
	var cold, warm *Reading
	for i := range p.Readings {
		switch r := &p.Readings[i]; {
		case r.How == warmFiles:
			warm = r
		case r.How == coldFiles && (cold == nil || r.speed() > cold.speed()):
			cold = r
		}
	}
	lcache := &p.Readings[len(p.Readings)-1]
	said := []string{"the same bytes, and lcache is " + lcache.times(cold)}
	if lcache.speed() < doctor.Worthwhile*cold.speed() {
		said[0] = "no benefit on this disk: " + said[0]
	}
	switch {
	case cold.Disk < 0:
		said = append(said, "the kernel does not tell whether the files came from the disk")
	case cold.Disk < cold.Bytes/2:
		said = append(said, "but most of the files came from memory in spite of that")
	}
	switch {
	case warm == nil:
	case lcache.speed() < doctor.Worthwhile*warm.speed():
		said = append(said, "the files fit into memory, where plain files are "+warm.times(lcache)+": lcache is not worth it for a dataset of this size")
	default:
		said = append(said, "the files fit into memory, but lcache is "+lcache.times(warm))
	}
	c.Text = strings.Join(said, "; ")
	return c
}

func (r *Reading) times(of *Reading) string {
	name := of.Name()
	if of.How == fromLcache {
		name = of.How
	}
	return fmt.Sprintf("%.1f times as fast as %s", r.speed()/max(of.speed(), 1e-9), name)
}
