// Package bench times epochs of a cache, and measures the limit of the device below it.
//
// Run reads up to four epochs: two without writing and two that are reordered, of each kind one into nothing (a client in this process) and one
// into Python. Before and after each epoch it measures the device, with the same direct I/O. The Report has the rates and a verdict on each
// epoch. Run locks the cache. Each reordering moves the log on by an epoch.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/cmd/lcache/internal/launch"
	"lcache/engine"
	"lcache/internal/host"
	"lcache/internal/verdict"
)

// LimitTime is the default of Options.LimitTime.
const LimitTime = 2 * time.Second

// Options of Run.
type Options struct {
	Engine    engine.Options
	Python    string        // the interpreter to read with
	Client    string        // folder of the Python package; "": as Python finds it
	LimitTime time.Duration // of measuring the device before an epoch, and again after it; 0: LimitTime
	Stage     func(string)  // called when a stage begins
	Logs      io.Writer     // of the child in Python
}

// bench runs the four epochs, one after the other.
type bench struct {
	o Options

	disks  []*doctor.Disk // one for each device
	dir    string         // for the script and the socket
	reader string
	env    []string
}

// A Report has the figures. Sizes are in bytes, rates in bytes a second.
type Report struct {
	Dirs     []string `json:"dirs"`
	Samples  int64    `json:"samples"`
	Bytes    int64    `json:"bytes"`
	Engine   string   `json:"io_engine"`
	Direct   bool     `json:"direct"`
	Page     int      `json:"page_bytes"`
	Memory   int64    `json:"memory_bytes"`
	CPUs     int      `json:"cpus"`
	Layout   string   `json:"layout"`
	Unit     int      `json:"device_read_bytes"`   // of one read when the device was measured
	NoLimit  string   `json:"no_limit,omitempty"`  // why the device was not measured
	NoPython string   `json:"no_python,omitempty"` // why no epoch was read into Python
	From     int      `json:"from_epoch"`          // of the log
	To       int      `json:"to_epoch"`            // afterwards
	Epochs   []Epoch  `json:"epochs"`
}

// An Epoch is one epoch that was read.
type Epoch struct {
	Reorder  bool          `json:"reorder"`
	Into     string        `json:"into"` // "nothing" or "Python"
	Epoch    int           `json:"epoch"`
	Seconds  float64       `json:"seconds"`
	Samples  int64         `json:"samples"`
	Bytes    int64         `json:"bytes"`
	LogRead  int64         `json:"log_read_bytes"`
	LogWrite int64         `json:"log_write_bytes"`
	Hits     int64         `json:"hits"`
	Misses   int64         `json:"misses"`
	CPU      float64       `json:"server_cpu_seconds"`
	Client   float64       `json:"client_cpu_seconds"`
	Limit    float64       `json:"device_bytes_per_second"` // read, and with Reorder written at the same time; 0: not measured
	Bound    verdict.Cause `json:"bound_by"`
}

// Run reads the epochs.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	if o.LimitTime == 0 {
		o.LimitTime = LimitTime
	}
	b := &bench{o: o}
	r = &Report{Dirs: b.o.Engine.Dirs, CPUs: host.Cores}
	if err := b.settle(ctx, r); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "lcache-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for the socket: %w", err)
	}
	defer os.RemoveAll(b.dir)
	r.NoPython = b.findPython(ctx)
	r.NoLimit = b.openDisks(ctx)
	defer func() {
		for _, d := range b.disks {
			err = errors.Join(err, d.Close())
		}
	}()
	reorders := []bool{false, true}
	if r.Layout == "static" {
		reorders = reorders[:1]
	}
	for _, reorder := range reorders {
		for _, python := range []bool{false, true} {
			if python && r.NoPython != "" {
				continue
			}
			e, err := b.epoch(ctx, r, reorder, python)
			if err != nil {
				return nil, err
			}
			r.Epochs = append(r.Epochs, *e)
			if reorder {
				r.To = e.Epoch + 1
			}
		}
	}
	return r, nil
}

// settle puts the log in the order of one epoch, if it is not: it reads an epoch, which is not measured.
func (b *bench) settle(ctx context.Context, r *Report) error {
	for {
		e, err := engine.OpenBench(b.o.Engine, false)
		if err != nil {
			return err
		}
		r.Layout, r.Unit = e.Layout(), 1<<20
		if e.Static {
			r.Unit = int((e.Bytes/max(e.Samples, 1)+2*4096-1)/4096) * 4096 // with the pages that a read begins and ends with
		}
		r.Samples, r.Bytes, r.From, r.To = e.Samples, e.Bytes, e.Epoch, e.Epoch
		if e.Settling {
			b.o.Stage("sorting the log")
			if _, _, err = e.Read(ctx); err == nil {
				err = e.MovedOn(ctx)
			}
		}
		if err = errors.Join(err, stopBench(ctx, e)); err != nil || !e.Settling {
			return err
		}
	}
}

func stopBench(ctx context.Context, e *engine.Bench) error {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), launch.StopTime)
	defer cancel()
	return e.Close(stop)
}

// epoch measures one epoch, and the device before and after it.
func (b *bench) epoch(ctx context.Context, r *Report, reorder, python bool) (e *Epoch, err error) {
	e = &Epoch{Reorder: reorder, Into: "nothing"}
	if python {
		e.Into = "Python"
	}
	b.o.Stage("measuring the device")
	before, err := b.limit(ctx, r, reorder)
	if err != nil {
		return nil, err
	}
	if err := b.read(ctx, r, e, reorder, python); err != nil {
		return nil, err
	}
	b.o.Stage("measuring the device")
	after, err := b.limit(ctx, r, reorder)
	if err != nil {
		return nil, err
	}
	e.Limit = (before + after) / 2
	e.Bound = verdict.Judge(e.facts(r.CPUs)).Cause
	return e, nil
}

// read opens the cache, reads one epoch, and closes it.
func (b *bench) read(ctx context.Context, r *Report, e *Epoch, reorder, python bool) (err error) {
	eng, err := engine.OpenBench(b.o.Engine, reorder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopBench(ctx, eng)) }()
	e.Epoch = eng.Epoch
	b.o.Stage(fmt.Sprintf("reading epoch %d into %s", e.Epoch, e.Into))
	cpu, client, began := cpuSeconds(unix.RUSAGE_SELF), cpuSeconds(unix.RUSAGE_CHILDREN), time.Now()
	if python {
		err = b.intoPython(ctx, eng, e)
	} else {
		e.Samples, e.Bytes, err = eng.Read(ctx)
		e.Seconds = time.Since(began).Seconds()
	}
	if err != nil {
		return err
	}
	e.CPU, e.Client = cpuSeconds(unix.RUSAGE_SELF)-cpu, cpuSeconds(unix.RUSAGE_CHILDREN)-client
	if err := eng.MovedOn(ctx); err != nil {
		return err
	}
	s := eng.Status()
	e.LogRead, e.LogWrite, e.Hits, e.Misses = s.Totals.LogReadBytes, s.Totals.LogWriteBytes, s.Totals.Hits, s.Totals.Misses
	r.Engine, r.Direct, r.Page, r.Memory = s.IOEngine, s.Direct, s.PageBytes, s.MemoryBytes
	return nil
}

func cpuSeconds(who int) float64 {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// facts returns the facts for a verdict on the epoch. The reader only reads, so all of its time counts as waiting.
func (e *Epoch) facts(cpus int) verdict.Facts {
	f := verdict.Facts{Delivered: e.Samples, Seconds: e.Seconds, Samples: e.Samples, Misses: e.Misses, Stall: e.Seconds, LoopSeconds: e.Seconds, LoopWait: e.Seconds,
		DiskRate: float64(e.Bytes) / e.Seconds, DiskLimit: e.Limit, CPUs: cpus, ServerCPU: e.CPU}
	if e.Into == "Python" {
		f.ReaderCPU = e.Client
	}
	return f
}
