package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"lcache/cmd/lcache/internal/launch"
	"lcache/engine"
	"lcache/internal/jsonbytes"
	"lcache/server"
)

//go:embed bench_reader.py
var script []byte

// intoPython serves the engine to a child in Python, which reads the epoch.
func (b *bench) intoPython(ctx context.Context, eng *engine.Bench, e *Epoch) (err error) {
	s, err := server.Listen(eng.Engine, server.Options{Path: filepath.Join(b.dir, "socket"), Logger: b.o.Engine.Logger})
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
		ranks = append(ranks, strconv.Itoa(r))
	}
	cmd := exec.CommandContext(ctx, b.o.Python, b.reader, s.Path(), strconv.Itoa(e.Epoch), strings.Join(ranks, ","))
	cmd.Env, cmd.Stderr = b.env, b.o.Logs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = launch.StopTime
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the reader in Python, whose own message is above: %w", err)
	}
	if err := jsonbytes.Unmarshal(out, e); err != nil {
		return fmt.Errorf("read the result of the Python reader: %w", err)
	}
	return nil
}

// findPython writes the script, and tries to import the client. It returns the reason if Python can't run it.
func (b *bench) findPython(ctx context.Context) string {
	b.reader = filepath.Join(b.dir, "reader.py")
	if err := os.WriteFile(b.reader, script, 0o600); err != nil {
		return err.Error()
	}
	if _, err := exec.LookPath(b.o.Python); err != nil {
		return fmt.Sprintf("no %s: install Python 3.9 or newer, or give --python", b.o.Python)
	}
	folders := []string{b.o.Client}
	if b.o.Client == "" {
		folders = []string{os.Getenv("PYTHONPATH"), "python"}
	}
	for _, folder := range folders {
		path, err := filepath.Abs(folder)
		if err != nil || folder == "" {
			path = folder
		}
		b.env = append(launch.ChildEnvironment(os.Environ()), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
		try := exec.CommandContext(ctx, b.o.Python, "-c", "import lcache; lcache.connect")
		try.Env = b.env
		if try.Run() == nil {
			return ""
		}
	}
	return fmt.Sprintf("%s has no package lcache: install it, or give --client DIR", b.o.Python)
}
