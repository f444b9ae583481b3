package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"lcache/cores"
	"lcache/doctor"
	"lcache/engine"
	"lcache/launch"
	"lcache/server"
	"lcache/verdict"
)

//go:embed bench_reader.py
var benchReader []byte

// limitTime is how long the device is measured before an epoch, and again after it. Tests, to which its figures say nothing, take less.
var limitTime = 2 * time.Second

// bench runs the four epochs, one after the other.
type bench struct {
	o     benchOptions
	stage func(string)
	logs  io.Writer

	disks  []*doctor.Disk // one for each device
	dir    string         // for the script and the socket
	reader string
	env    []string
}

// benchReport is the document of --json. Bytes and bytes a second.
type benchReport struct {
	Dirs     []string     `json:"dirs"`
	Samples  int64        `json:"samples"`
	Bytes    int64        `json:"bytes"`
	Engine   string       `json:"io_engine"`
	Direct   bool         `json:"direct"`
	Page     int          `json:"page_bytes"`
	Memory   int64        `json:"memory_bytes"`
	CPUs     int          `json:"cpus"`
	Layout   string       `json:"layout"`
	Unit     int          `json:"device_read_bytes"`   // of one read when the device was measured
	NoLimit  string       `json:"no_limit,omitempty"`  // why the device was not measured
	NoPython string       `json:"no_python,omitempty"` // why there is no epoch into Python
	From     int          `json:"from_epoch"`          // of the log
	To       int          `json:"to_epoch"`            // afterwards
	Epochs   []benchEpoch `json:"epochs"`
}

// benchEpoch is one epoch that was read.
type benchEpoch struct {
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

func (b *bench) run(ctx context.Context) (r *benchReport, err error) {
	r = &benchReport{Dirs: b.o.engine.Dirs, CPUs: cores.N}
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

// settle reads an epoch that is no measurement if the log is between two orders.
func (b *bench) settle(ctx context.Context, r *benchReport) error {
	for {
		e, err := engine.OpenBench(b.o.engine, false)
		if err != nil {
			return err
		}
		r.Layout, r.Unit = e.Layout(), 1<<20
		if e.Static {
			r.Unit = int((e.Bytes/max(e.Samples, 1)+2*4096-1)/4096) * 4096 // with the pages that a read begins and ends with
		}
		r.Samples, r.Bytes, r.From, r.To = e.Samples, e.Bytes, e.Epoch, e.Epoch
		if e.Settling {
			b.stage("putting the log in order")
			_, _, err = e.Read(ctx)
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

// openDisks makes a measurement's file on each device; it says why not.
func (b *bench) openDisks(ctx context.Context) string {
	seen := map[uint64]bool{}
	for _, dir := range b.o.engine.Dirs {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return err.Error()
		}
		if seen[st.Dev] {
			continue
		}
		seen[st.Dev] = true
		b.stage("device of " + dir)
		d, err := doctor.OpenDisk(ctx, doctor.DiskOptions{Dir: dir, Engine: b.o.engine.IO.Engine, Logger: b.o.engine.Logger})
		if err != nil {
			return err.Error()
		}
		b.disks = append(b.disks, d)
	}
	return ""
}

// limit is what all devices give now, side by side, in bytes a second.
func (b *bench) limit(ctx context.Context, r *benchReport, reorder bool) (float64, error) {
	streams := []doctor.Stream{{Size: 1 << 20, Depth: 16}}
	if r.Layout == "static" {
		streams[0] = doctor.Stream{Size: min(r.Unit, 1<<20), Depth: 64, Random: true}
	}
	if reorder {
		streams = append(streams, doctor.Stream{Size: 1 << 20, Depth: 16, Write: true})
	}
	each := make([]float64, len(b.disks))
	var all errgroup.Group
	for i, d := range b.disks {
		all.Go(func() error {
			rates, err := d.Run(ctx, limitTime, streams...)
			if err != nil {
				return err
			}
			each[i] = rates[0].BytesPerSecond()
			for _, r := range rates {
				each[i] = min(each[i], r.BytesPerSecond())
			}
			return nil
		})
	}
	err := all.Wait()
	sum := 0.0
	for _, x := range each {
		sum += x
	}
	if r.Layout == "static" && r.Samples > 0 { // of what is read, only the samples' own bytes count
		sum *= float64(r.Bytes) / float64(r.Samples) / float64(r.Unit)
	}
	return sum, err
}

// epoch measures one, between two looks at the device.
func (b *bench) epoch(ctx context.Context, r *benchReport, reorder, python bool) (e *benchEpoch, err error) {
	e = &benchEpoch{Reorder: reorder, Into: "nothing"}
	if python {
		e.Into = "Python"
	}
	b.stage("device")
	before, err := b.limit(ctx, r, reorder)
	if err != nil {
		return nil, err
	}
	if err := b.read(ctx, r, e, reorder, python); err != nil {
		return nil, err
	}
	b.stage("device")
	after, err := b.limit(ctx, r, reorder)
	if err != nil {
		return nil, err
	}
	e.Limit = (before + after) / 2
	e.Bound = verdict.Judge(e.facts(r.CPUs)).Cause
	return e, nil
}

// read opens the cache, reads one epoch, and closes it.
func (b *bench) read(ctx context.Context, r *benchReport, e *benchEpoch, reorder, python bool) (err error) {
	eng, err := engine.OpenBench(b.o.engine, reorder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopBench(ctx, eng)) }()
	e.Epoch = eng.Epoch
	b.stage(fmt.Sprintf("epoch %d into %s", e.Epoch, e.Into))
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
	s := eng.Status()
	j := s.Jobs[0]
	e.LogRead, e.LogWrite, e.Hits, e.Misses = j.LogReadBytes, j.LogWriteBytes, j.Hits, j.Misses
	r.Engine, r.Direct, r.Page, r.Memory = s.IOEngine, s.Direct, s.PageBytes, s.MemoryBytes
	return nil
}

// intoPython serves the engine to a child that reads it.
func (b *bench) intoPython(ctx context.Context, eng *engine.Bench, e *benchEpoch) (err error) {
	s, err := server.Listen(eng.Engine, server.Options{Path: filepath.Join(b.dir, "socket"), Logger: b.o.engine.Logger})
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), launch.StopTime)
		defer cancel()
		err = errors.Join(err, s.Shutdown(stop), <-served)
	}()
	var ranks []string
	for _, r := range eng.Ranks() {
		ranks = append(ranks, itoa64(int64(r)))
	}
	cmd := exec.CommandContext(ctx, b.o.python, b.reader, s.Path(), itoa64(int64(e.Epoch)), strings.Join(ranks, ","))
	cmd.Env, cmd.Stderr = b.env, b.logs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = launch.StopTime
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the reader in Python, whose own message is above: %w", err)
	}
	if err := json.Unmarshal(out, e); err != nil {
		return fmt.Errorf("what the reader in Python says: %w", err)
	}
	return nil
}

func itoa64(n int64) string { return fmt.Sprint(n) }

// findPython makes the script and sees whether it can run; it says why not.
func (b *bench) findPython(ctx context.Context) string {
	b.reader = filepath.Join(b.dir, "reader.py")
	if err := os.WriteFile(b.reader, benchReader, 0o600); err != nil {
		return err.Error()
	}
	if _, err := exec.LookPath(b.o.python); err != nil {
		return fmt.Sprintf("no %s: install Python 3.9 or newer, or give --python", b.o.python)
	}
	folders := []string{b.o.client}
	if b.o.client == "" {
		folders = []string{os.Getenv("PYTHONPATH"), "python"}
	}
	for _, folder := range folders {
		path, err := filepath.Abs(folder)
		if err != nil || folder == "" {
			path = folder
		}
		b.env = append(childEnvironment(os.Environ()), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
		try := exec.CommandContext(ctx, b.o.python, "-c", "import lcache; lcache.connect")
		try.Env = b.env
		if try.Run() == nil {
			return ""
		}
	}
	return fmt.Sprintf("%s has no package lcache: install it, or give --client DIR", b.o.python)
}

func cpuSeconds(who int) float64 {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
