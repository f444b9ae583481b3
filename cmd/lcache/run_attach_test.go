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

	"lcache/engine"
	"lcache/schedule"
)

// TestAttachedSummary: with a server that was there before, the summary is about what was done since.
func TestAttachedSummary(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	status := func(epochs int, samples int64) engine.Status {
		j := engine.JobStatus{Name: "train", Recipe: "torch.randperm", Samples: 100, DatasetBytes: 1e6, KeptBytes: 1e6, SamplesDelivered: samples, Hits: samples - 10, Misses: 10, CorruptSamples: samples / 100,
			Divergences: 1, FirstDivergence: &engine.Divergence{Batch: 7}}
		loop, decode := float64(samples), float64(samples)/2
		if j.LoopSeconds = &loop; epochs > 3 {
			j.DecodeSeconds = &decode // told later
		}
		for e := range epochs {
			j.EpochsDone = append(j.EpochsDone, engine.EpochDone{Epoch: e, Seconds: 10, Hits: 100, OrderDigest: &digest})
		}
		return engine.Status{Schema: 1, Jobs: []engine.JobStatus{j}}
	}
	s := &serving{other: &attachment{pid: 4711, began: status(3, 300)}, last: status(5, 500)}
	of := s.ofRun().Jobs[0]
	if of.SamplesDelivered != 200 || of.Hits != 200 || of.Misses != 0 || of.CorruptSamples != 2 || of.Divergences != 0 || of.FirstDivergence != nil {
		t.Errorf("counters %+v", of)
	}
	if *of.LoopSeconds != 200 || *of.DecodeSeconds != 250 || of.LoopWaitSeconds != nil {
		t.Errorf("the loop's seconds: %v, %v, %v", *of.LoopSeconds, *of.DecodeSeconds, of.LoopWaitSeconds)
	}
	if len(of.EpochsDone) != 2 || of.EpochsDone[0].Epoch != 3 {
		t.Errorf("epochs %+v", of.EpochsDone)
	}
	if s.last.Jobs[0].SamplesDelivered != 500 || *s.last.Jobs[0].LoopSeconds != 500 {
		t.Error("the server's own document was changed")
	}
	if got := exactText(s.ofRun()); got != "order as torch's, 2 of 2 epochs · every byte verified · 2 samples were corrupt on disk, and read from the source instead" {
		t.Errorf("got %s", got)
	}
	own := &serving{last: status(5, 500)}
	if got := own.ofRun().Jobs[0].SamplesDelivered; got != 500 {
		t.Errorf("of a server of the run's own: %d samples", got)
	}
}

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
	if want := fmt.Sprintf("process %d ended before the command did", pid); !strings.Contains(stderr.String(), want) {
		t.Errorf("not said: %s\n%s", want, stderr.String())
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
	if err := s.server.Wait(); err != nil { // by itself, then
		t.Errorf("the server ended with %v", err)
	}
	s.server = nil
}

// TestInUse: a cache that a process has which is no server is refused, with the process.
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

// TestAttachedEpochs: orders, digests and bytes of a run that is attached are those of the server's job.
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

func TestSameJob(t *testing.T) {
	job := schedule.Job{Recipe: "torch.randperm", Seed: "5", BatchSize: 2, Params: map[string]string{"a": "1"}}
	for name, change := range map[string]func(*schedule.Job){
		"recipe": func(j *schedule.Job) { j.Recipe = "" }, "seed": func(j *schedule.Job) { j.Seed = "6" }, "epochs": func(j *schedule.Job) { j.Epochs = 3 },
		"world": func(j *schedule.Job) { j.World = 2 }, "ranks": func(j *schedule.Job) { j.Ranks = []int{0} }, "drop_last": func(j *schedule.Job) { j.DropLast = true },
		"params": func(j *schedule.Job) { j.Params = map[string]string{"a": "2"} },
	} {
		other := job
		if change(&other); sameJob(job, other) {
			t.Errorf("another %s is not seen", name)
		}
	}
	same := job
	same.World, same.Ranks, same.Params = 1, []int{}, map[string]string{"a": "1"}
	if !sameJob(job, same) || !sameJob(schedule.Job{}, schedule.Job{Params: map[string]string{}}) {
		t.Error("the same is taken for another")
	}
}
