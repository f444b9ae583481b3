// Package demo trains on real files through a cache, and checks every byte.
//
// Run ingests a folder, serves it, and reads it from Python for several fully shuffled epochs, with several ranks. After this first pass
// it times the same samples in the same order as plain files. The second pass repeats the first with half of the space. The server and
// each rank are separate processes, as a user's would be. Each rank compares every sample with its file, and the order with its own
// computation. The Result has the figures, and the Checks that must hold.
package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/launch"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

//go:embed demo_reader.py
var script []byte

// Options of Run.
type Options struct {
	Source    string   // a directory, absolute
	Exts      []string // endings of the files to take from it; none: all
	Dir       string   // the cache is made below it
	Keep      bool     // leave the caches there
	Epochs    int
	World     int // ranks
	BatchSize int
	Python    string // the interpreter to read with
	Client    string // folder of the Python package
	IO        cache.IO

	Logs     io.Writer // of the children
	Logger   *slog.Logger
	Progress func(cache.Progress)
	Ingested func(*ingest.Report) // after the first ingest, with all of the space
}

// demo is one Run.
type demo struct {
	o      Options
	reader string // the script, on disk
}

// canHalve reports whether a source is large enough for a pass with half of the disk space: the log needs some MB, and space for some of the
// largest samples.
func canHalve(source string, exts []string, bytes int64) (bool, error) {
	largest := int64(0)
	err := filepath.WalkDir(source+"/", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || len(exts) > 0 && !slices.Contains(exts, filepath.Ext(d.Name())) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			largest = max(largest, info.Size())
		}
		return err
	})
	return bytes/2 >= 8_000_000+4*largest, err
}

// Run runs the demo. A check that fails is in the Result; it is not an error.
func Run(ctx context.Context, o Options) (*Result, error) {
	d := &demo{o: o}
	dir, err := os.MkdirTemp(d.o.Dir, "lcache-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the cache: %w", err)
	}
	if d.o.Keep {
		defer fmt.Fprintf(d.o.Logs, "kept: %s\n", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	d.reader = filepath.Join(dir, "reader.py")
	if err := os.WriteFile(d.reader, script, 0o600); err != nil {
		return nil, fmt.Errorf("write the reader: %w", err)
	}
	result := &Result{Source: d.o.Source, Epochs: d.o.Epochs, World: d.o.World}
	full, err := d.pass(ctx, "full", filepath.Join(dir, "full"), 0)
	if err != nil {
		return nil, err
	}
	result.Full, result.Plain = *full, full.plain
	enough, err := canHalve(d.o.Source, d.o.Exts, full.Ingest.Bytes)
	if err != nil {
		return nil, fmt.Errorf("look at the source: %w", err)
	}
	if enough {
		if result.Half, err = d.pass(ctx, "half", filepath.Join(dir, "half"), full.Ingest.Bytes/2); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// pass ingests the source, serves it, and reads all epochs, with a given budget; 0: the dataset's need.
func (d *demo) pass(ctx context.Context, name, cache string, budget int64) (*Pass, error) {
	epochs := d.o.Epochs
	if budget == 0 {
		epochs = 2*d.o.Epochs + 1 // for the timed epochs, too. All but the last epoch of a job write the next one: no timed epoch is the last
	}
	report, err := ingest.Run(ctx, ingest.Options{
		Source: d.o.Source, Exts: d.o.Exts, AllowEmpty: len(d.o.Exts) > 0, Dirs: []string{cache}, Budget: budget,
		Job:    schedule.Job{Recipe: "torch.distributed_sampler", Seed: "0", Epochs: epochs, BatchSize: d.o.BatchSize, World: d.o.World},
		IO:     d.o.IO,
		Logger: d.o.Logger, Progress: d.o.Progress,
	})
	if err != nil {
		return nil, fmt.Errorf("ingest %s: %w", d.o.Source, err)
	}
	p := &Pass{Name: name, Ingest: report}
	if budget == 0 {
		d.o.Ingested(report)
	}
	socket, stop, err := d.serve(ctx, cache)
	if err != nil {
		return nil, err
	}
	err = d.read(ctx, p, socket)
	if stopErr := stop(); stopErr != nil && err == nil {
		p.Wrong = append(p.Wrong, fmt.Sprintf("the server did not stop cleanly: %v", stopErr))
	}
	return p, err
}

// serve starts lcache serve as a child and waits until it says where it listens. stop ends it the clean way.
func (d *demo) serve(ctx context.Context, cache string) (socket string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "serve", "--cache", cache, "--json", "--quiet")
	cmd.Env = launch.ChildEnvironment(os.Environ())
	cmd.Stderr = d.o.Logs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = launch.StopTime
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("start the server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start the server: %w", err)
	}
	var said struct {
		Socket string `json:"socket"`
	}
	var line json.RawMessage
	err = json.NewDecoder(out).Decode(&line)
	if err == nil {
		err = jsonbytes.Unmarshal(line, &said)
	}
	if err != nil {
		cmd.Process.Signal(syscall.SIGTERM)
		return "", nil, fmt.Errorf("the server ended before it served: %w", errors.Join(err, cmd.Wait()))
	}
	return said.Socket, func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}, nil
}

// read lets all ranks read epoch after epoch, and takes the server's counters after each epoch. With all of the space it then compares with plain
// files.
func (d *demo) read(ctx context.Context, p *Pass, socket string) error {
	status, err := attach.Dial(socket, "lcache-demo")
	if err != nil {
		return err
	}
	defer status.Close()
	ranks := make([]*rank, d.o.World)
	defer func() {
		for _, r := range ranks {
			r.close()
		}
	}()
	for i := range ranks {
		if ranks[i], err = d.startRank(ctx, socket, i); err != nil {
			return err
		}
	}
	for i, r := range ranks {
		var ready struct{ Ready bool }
		if err := r.answer(&ready); err != nil {
			return fmt.Errorf("rank %d does not start: %w", i, err)
		}
	}
	_, before, err := status.Status()
	if err != nil {
		return err
	}
	for epoch := range d.o.Epochs {
		answers, seconds, err := oneEpoch(ranks, epoch)
		if err != nil {
			return err
		}
		_, after, err := status.Status()
		if err != nil {
			return err
		}
		p.add(epoch, seconds, answers, before, after)
		before = after
		d.o.Progress(cache.Progress{Stage: "epochs", Done: int64(epoch + 1), Total: int64(d.o.Epochs), Unit: "epochs"})
	}
	if p.Name != "full" {
		return nil
	}
	p.plain, err = d.readPlain(ctx, ranks, status, p.Ingest.Bytes)
	return err
}
