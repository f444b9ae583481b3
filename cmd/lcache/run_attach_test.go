package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServerGone: when the server ends before the command does, the run says so, and the command's exit code stays.
func TestServerGone(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.ingested()
	s.start("serve", s.lcache("serve", "--cache", "cache", "--quiet"))
	cmd := s.lcache("run", "--cache", "cache", "--", "sh", "-c", fmt.Sprintf("kill -9 %d; while kill -0 %d 2>&-; do :; done; exit 5", s.server.Process.Pid, s.server.Process.Pid))
	reaped := make(chan struct{})
	go func() { // else the process stays, as a zombie
		s.server.Wait()
		close(reaped)
	}()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	<-reaped
	pid := s.server.Process.Pid
	s.server = nil
	if code := cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(string(out), "sh ended (5)") {
		t.Errorf("ended with %d: %s", code, out)
	}
	if want := fmt.Sprintf("process %d ended before the command: the summary covers the time until then", pid); !strings.Contains(stderr.String(), want) {
		t.Errorf("got\n%s\nwant %s", stderr.String(), want)
	}
}

// TestServerStays: a server that ends without clients is kept by a run that is attached to it, though COMMAND has no connection.
func TestServerStays(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.ingested()
	s.start("serve", s.lcache("serve", "--cache", "cache", "--quiet", "--exit-idle", "2s"))
	cmd := s.lcache("run", "--cache", "cache", "--json", "--", "sh", "-c", "sleep 3; test -S $LCACHE_SOCKET")
	out, err := cmd.Output()
	var sum runSummary
	if err != nil || json.Unmarshal(out, &sum) != nil || sum.ExitCode != 0 || sum.Sources[0].Server != s.server.Process.Pid {
		t.Errorf("%v: %s", err, out)
	}
	if err := s.server.Wait(); err != nil { // without being told
		t.Errorf("the server ended with %v", err)
	}
	s.server = nil
}

// TestInUse: a cache that a process other than a server has open is refused; the error names the process.
func TestInUse(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.ingested()
	lock, err := syscall.Open(filepath.Join(s.work, "cache", "LOCK"), syscall.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(lock)
	if err := syscall.Flock(lock, syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := s.lcache("run", "--quiet", "--cache", "cache", "--", "true")
	cmd.Stderr = &stderr
	err = cmd.Run()
	exit, _ := err.(*exec.ExitError)
	if exit == nil || exit.ExitCode() != exitRunFailed || !strings.HasPrefix(stderr.String(), "lcache run: "+filepath.Join(s.work, "cache")+" is in use") {
		t.Errorf("%v: %s", err, stderr.String())
	}
}

// TestAttachedEpochs: an attached run has the orders, digests and bytes of the server's job.
func TestAttachedEpochs(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	client, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(t)
	s.env = append(s.env, "PYTHONPATH="+client)
	s.ingested()
	if err := s.lcache("ingest", "--source", "data", "--cache", "cache", "--quiet", "--recipe", "torch.randperm", "--seed", "1", "--batch-size", "4", "--epochs", "4").Run(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(s.work, "train.py"), `
import os, sys, lcache
with lcache.connect() as job:
    for epoch in map(int, sys.argv[1:]):
        assert sorted(i for batch in job.epoch(epoch) for i in batch.indices) == list(range(10))
`)
	s.start("serve", s.lcache("serve", "--cache", "cache", "--quiet"))
	defer s.end("serve", "stop")
	for _, epochs := range [][]string{{"0", "1"}, {"2", "3"}} {
		out, err := s.lcache(append([]string{"run", "--quiet=false", "--cache", "cache", "--", python, "train.py"}, epochs...)...).Output()
		want := []string{"train.py ended (0) after {…}", "epoch {…}", epochs[0] + " {…}", epochs[1] + " {…}", "exact order as torch's, 2 of 2 epochs · every byte verified · 0 corrupt", "{…}"}
		if err != nil || !matches(string(out), want, s.work) {
			t.Errorf("%v:\n%s", err, out)
		}
	}
}
