package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/launch"
)

// beCommand is a COMMAND that says ready, then the number of each signal that it gets, and ends with the number that it reads on stdin.
func beCommand() int {
	caught := make(chan os.Signal, 16)
	for _, s := range forwarded {
		signal.Notify(caught, s)
	}
	fmt.Println("ready")
	go func() {
		for s := range caught {
			fmt.Println(int(s.(syscall.Signal)))
		}
	}()
	code := exitError
	fmt.Scan(&code)
	return code
}

var forwarded = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// runProcess is a running lcache run with a test's command.
type runProcess struct {
	*exec.Cmd
	in     io.WriteCloser
	lines  *bufio.Reader
	errors bytes.Buffer
}

// startRun starts lcache run with these words, in a session of its own, so that no terminal has a say.
func startRun(t *testing.T, dir string, words ...string) *runProcess {
	t.Helper()
	if err := patterned(filepath.Join(dir, "data", "a", "1"), "3000"); err != nil {
		t.Fatal(err)
	}
	b := &runProcess{Cmd: exec.Command(words[0], words[1:]...)}
	b.Dir = dir
	b.Env = append(launch.ChildEnvironment(os.Environ()), "LCACHE_TEST_AS_LCACHE=1", "XDG_RUNTIME_DIR="+dir, "XDG_CACHE_HOME="+dir)
	b.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b.Stderr = &b.errors
	out, err := b.StdoutPipe()
	if err == nil {
		b.in, err = b.StdinPipe()
	}
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.in.Close() // ends the command, whatever it ignores
		b.Process.Kill()
		b.Wait()
	})
	out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute)) // a test that would wait for ever says where
	b.lines = bufio.NewReader(out)
	return b
}

func (b *runProcess) line(t *testing.T) string {
	t.Helper()
	line, err := b.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("no line: %v; %s", err, b.errors.String())
	}
	return strings.TrimSpace(line)
}

// end waits and returns the remaining output and the exit code.
func (b *runProcess) end(t *testing.T) (string, int) {
	t.Helper()
	rest, err := io.ReadAll(b.lines)
	if err != nil {
		t.Fatal(err)
	}
	b.Wait()
	return string(rest), b.ProcessState.ExitCode()
}

var thisCommand = []string{"--", "env", "LCACHE_TEST_AS_COMMAND=1", os.Args[0]}

// TestSignalsPassed: each signal reaches the command, which decides how to react. lcache continues to serve and ends when the command does.
func TestSignalsPassed(t *testing.T) {
	b := startRun(t, diskDir(t), append([]string{os.Args[0], "run", "--source", "data"}, thisCommand...)...)
	if got := b.line(t); got != "ready" {
		t.Fatalf("got %q", got)
	}
	for range 2 { // the second one of a kind has no other effect than the first
		for _, s := range forwarded {
			if signal.Ignored(s) { // the tests run under nohup, for example: run leaves the signal ignored
				continue
			}
			if err := b.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			if got := b.line(t); got != fmt.Sprint(int(s)) {
				t.Errorf("%v: the command got %q", s, got)
			}
		}
	}
	io.WriteString(b.in, "7\n")
	rest, code := b.end(t)
	if code != 7 || !strings.Contains(rest, "env ended (7) after ") {
		t.Errorf("ended with %d: %s %s", code, rest, b.errors.String())
	}
}

// TestSeenBesideRun: the server inside a run is one like any other to status, ls and rm.
func TestSeenBesideRun(t *testing.T) {
	t.Parallel()
	dir := diskDir(t)
	b := startRun(t, dir, append([]string{os.Args[0], "run", "--source", "data"}, thisCommand...)...)
	b.line(t)
	other := func(words ...string) string {
		cmd := exec.Command(os.Args[0], words...)
		cmd.Dir, cmd.Env = b.Dir, b.Env
		out, _ := cmd.CombinedOutput() // its text says whether it worked
		return string(out)
	}
	if got := other("status"); !strings.HasPrefix(got, "data · epoch 0 · no rank reads\n") {
		t.Errorf("status: %s", got)
	}
	list := other("ls")
	if pid := fmt.Sprint(b.Process.Pid); !strings.Contains(list, " "+pid+"\n") {
		t.Errorf("process %s is not in %s", pid, list)
	}
	found, err := filepath.Glob(filepath.Join(dir, "lcache", "data-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("caches %v, %v", found, err)
	}
	if got := withoutCodes(other("rm", found[0])); got != fmt.Sprintf("lcache rm: %s is in use by process %d: stop it first, with lcache stop %d\n", found[0], b.Process.Pid, b.Process.Pid) {
		t.Errorf("rm: %s", got)
	}
	io.WriteString(b.in, "0\n")
	if rest, code := b.end(t); code != 0 {
		t.Errorf("ended with %d: %s %s", code, rest, b.errors.String())
	}
}

// TestTermIgnored: a command that does not want to end yet is not left without its servers.
func TestTermIgnored(t *testing.T) {
	b := startRun(t, diskDir(t), os.Args[0], "run", "--source", "data", "--quiet", "--", "sh", "-c", "trap '' TERM; echo ready; read code; test -S $LCACHE_SOCKET && exit $code")
	b.line(t)
	for range 3 {
		if err := b.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	io.WriteString(b.in, "3\n")
	if rest, code := b.end(t); code != 3 || rest != "" {
		t.Errorf("ended with %d: %s %s", code, rest, b.errors.String())
	}
}

// TestTermEnds: a command that has nothing against it ends by the signal, and so does lcache, with 128 and its number.
func TestTermEnds(t *testing.T) {
	b := startRun(t, diskDir(t), os.Args[0], "run", "--source", "data", "--", "sh", "-c", "echo ready; read line")
	b.line(t)
	if err := b.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, code := b.end(t); code != 128+15 || !strings.HasPrefix(rest, "sh was killed by SIGTERM after ") {
		t.Errorf("ended with %d: %s %s", code, rest, b.errors.String())
	}
}

// TestNohup: the command ignores the signals that lcache ignores.
func TestNohup(t *testing.T) {
	words := append([]string{"sh", "-c", `trap '' HUP; exec "$@"`, "sh", os.Args[0], "run", "--source", "data"}, "--", "sh", "-c", "kill -HUP $$; echo still; read code; exit $code")
	b := startRun(t, diskDir(t), words...)
	if got := b.line(t); got != "still" {
		t.Errorf("got %q", got)
	}
	if err := b.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	io.WriteString(b.in, "4\n")
	if rest, code := b.end(t); code != 4 {
		t.Errorf("ended with %d: %s %s", code, rest, b.errors.String())
	}
}

// TestRunPython is the whole way: listing, the first epochs through the Python client, and the summary.
func TestRunPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	client, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	dir := diskDir(t)
	for i := range 64 {
		for source, size := range map[string]int{"shuffled": 5000, "val": 100} {
			if err := patterned(filepath.Join(dir, source, fmt.Sprint("class", i%4), fmt.Sprint(i)), fmt.Sprint(size+i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	writeFile(t, filepath.Join(dir, "train.py"), `
import os
import lcache

with lcache.connect() as job, lcache.connect(os.environ["LCACHE_SOCKET_HELD_OUT"]) as held_out:
    assert os.environ["LCACHE_SOCKET"] == os.environ["LCACHE_SOCKET_TRAIN"] != os.environ["LCACHE_SOCKET_HELD_OUT"]
    for epoch in range(job.epochs):
        shuffled = [i for batch in job.epoch(epoch) for i in batch.indices]
        assert sorted(shuffled) == list(range(64)) != shuffled
        assert [i for batch in held_out.epoch(epoch) for i in batch.indices] == list(range(64))
`)
	t.Setenv("PYTHONPATH", client)
	// Epochs take a few milliseconds, so the number of samples that reach the log in time differs from run to run.
	const table = `epoch time MB/s hits source read written requests waited order
0 {…} {…} {…} % {…} {…} {…} {…} % {…}…
1 {…} {…} {…} % {…} {…} {…} {…} % {…}…
2 {…} {…} {…} % {…} {…} {…} {…} % {…}…
exact order as torch's, 3 of 3 epochs · every byte verified · 0 corrupt
bottleneck {…}
change {…}`
	b := startRun(t, dir, os.Args[0], "run", "--source", "train=shuffled", "--source", "held-out=val", "--recipe", "torch.distributed_sampler", "--seed", "1", "--batch-size", "4", "--epochs", "3", "--", python, "train.py")
	rest, code := b.end(t)
	want := "train.py ended (0) after {…}\n\ntrain · $WORK/shuffled\n" + table + "\n\nheld-out · $WORK/val\n" + table
	if code != 0 || !matches(rest, strings.Split(want, "\n"), dir) {
		t.Errorf("ended with %d:\n%s%s", code, rest, b.errors.String())
	}
}

// TestRunSeveralJobs: a training with a validation loop names two jobs. Each has an epoch, an order and a verdict in the summary. The server's own job was not used
// and is not in the summary. A job beyond --jobs-max is served, too.
func TestRunSeveralJobs(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	client, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	dir := diskDir(t)
	for i := range 64 {
		if err := patterned(filepath.Join(dir, "shuffled", fmt.Sprint(i)), fmt.Sprint(5000+i)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "train.py"), `
import lcache

with lcache.connect(job="train") as train, lcache.connect(job="validation") as validation, lcache.connect(job="notebook") as notebook:
    for job, order in (train, list(range(64))[::-1]), (validation, list(range(0, 64, 4))):
        job.push_order(0, 0, [order[i : i + 8] for i in range(0, len(order), 8)])
        assert [i for batch in job.epoch(0) for i in batch.indices] == order
    assert notebook.get([7]).indices[0] == 7
    status = train.stats()
    assert {job["id"]: job["on_demand"] for job in status["jobs"]} == {"train": False, "validation": False, "notebook": True}, status
    assert status["totals"]["samples_delivered"] == 81
`)
	t.Setenv("PYTHONPATH", client)
	const table = `epoch time MB/s hits source requests waited order
0 {…} {…} {…} % {…} {…} % {…}…
exact order as the loader's own, 1 of 1 epoch · every byte verified · 0 corrupt
bottleneck {…}
change {…}`
	const part = `epoch time MB/s hits source loop waited order
by index – – {…} % {…} – –
exact no epoch came to its end · every byte verified · 0 corrupt
bottleneck {…}
change {…}`
	b := startRun(t, dir, os.Args[0], "run", "--source", "shuffled", "--jobs-max", "2", "--", python, "train.py")
	rest, code := b.end(t)
	want := "train.py ended (0) after {…}\n\njob {…}\n" + table + "\n\njob {…}\n" + table + "\n\njob notebook\n" + part + "\n\ndisk {…} read and {…} written, for all jobs together"
	if code != 0 || !matches(rest, strings.Split(want, "\n"), dir) || !strings.Contains(rest, "job train") || !strings.Contains(rest, "job validation") {
		t.Errorf("ended with %d:\n%s%s", code, rest, b.errors.String())
	}
}
