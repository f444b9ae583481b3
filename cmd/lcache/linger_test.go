package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/internal/usage"
)

func TestLingerTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"": time.Minute, " ": time.Minute, "0": 0, "60": time.Minute, "0.5": 500 * time.Millisecond, ".5": 500 * time.Millisecond, "5.": 5 * time.Second, "2m": 2 * time.Minute, "300ms": 300 * time.Millisecond} {
		if got, err := lingerTime(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-1", "1m30s", "soon", "1d", "1e3", "99999999999999999999h"} {
		if got, err := lingerTime(text); err == nil || !strings.Contains(err.Error(), "LCACHE_LINGER="+text) {
			t.Errorf("%q: got %v, %v, want an error", text, got, err)
		}
	}
}

// machineTrainer is a rank of TestLinger: it reads every sample, in two parts, and compares it with the source. argv: --alone to wait until the server of rank 0 is gone;
// the rank.
const machineTrainer = `
import os, sys, time
import lcache

def await_(what, condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)

def read(job, indices):
    for first in range(0, len(indices), 10):
        batch = job.get(indices[first : first + 10])
        for name, view in zip(batch.names, batch.samples):
            assert bytes(view) == name.encode() * 20, name

def meet(where):
    open(f"{where}{rank}", "w").close()
    await_(f"the others to be {where}", lambda: all(os.path.exists(f"{where}{r}") for r in range(3)))

rank = int(sys.argv[-1])
with lcache.connect() as job:
    await_("the roster", lambda: job.stats()["cluster"]["state"] == "ok")
    meet("ready")
    read(job, range(0, 10))
    meet("began")
    if rank > 0:
        await_("the end of rank 0", lambda: os.path.exists("gone" if "--alone" in sys.argv else "ended0"))
    if rank > 1:
        await_("the end of rank 1", lambda: os.path.exists("ended1"))
    read(job, range(10, job.samples) if rank > 0 else range(10, 20))
`

// TestLinger: of three machines whose ranks end one after the other, each stays until the last rank has ended. So every sample is read from the source once.
// If Ctrl-C ends the stay of the first one, what it kept is read from the source again, which shows that the test counts.
func TestLinger(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	client, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	for n, isInterrupted := range []bool{false, true} {
		t.Run(fmt.Sprint("interrupted=", isInterrupted), func(t *testing.T) {
			t.Parallel()
			s := newScript(t)
			makeDataset(t, filepath.Join(s.work, "data"))
			writeFile(t, filepath.Join(s.work, "train.py"), machineTrainer)
			key, err := s.lcache("cluster", "key").Output()
			if err == nil {
				err = os.WriteFile(filepath.Join(s.work, "key"), key, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			var runs [3]*exec.Cmd
			var out [len(runs)]bytes.Buffer
			var logs [len(runs)]string
			host := func(rank int) string { return fmt.Sprintf("127.38.%d.%d", n, rank+1) } // of no other test
			for rank := range runs {
				home := filepath.Join(s.work, fmt.Sprint("home", rank))
				if err := os.Mkdir(home, 0o700); err != nil {
					t.Fatal(err)
				}
				train := fmt.Sprintf("%s train.py %d && touch ended%d", usage.ShellWord(python), rank, rank)
				if isInterrupted {
					train = strings.Replace(train, "train.py", "train.py --alone", 1)
				}
				cmd := s.lcache("run", "--json", "--quiet=false", "--source", "data", "--cache", filepath.Join(home, "cache"), "--cluster", host(0), "--cluster-key", "key", "--expect", "3",
					"--listen", host(rank), "--", "sh", "-c", train)
				cmd.Env = append(cmd.Env, "PYTHONPATH="+client, "LCACHE_LINGER=1m", "XDG_RUNTIME_DIR="+home)
				logs[rank] = filepath.Join(home, "stderr")
				stderr, err := os.Create(logs[rank])
				if err != nil {
					t.Fatal(err)
				}
				defer stderr.Close()
				cmd.Stdout, cmd.Stderr = &out[rank], stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { cmd.Process.Kill() }) // if the test ends before it
				runs[rank] = cmd
			}
			stays := func(rank int) bool {
				text, err := os.ReadFile(logs[rank])
				return err == nil && strings.Contains(string(text), "\ncluster   sh has ended; the server stays for other machines that still read from it, at most 1m0s (Ctrl-C ends it)\n")
			}
			for end := time.Now().Add(time.Minute); isInterrupted && !stays(0); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the first machine does not stay")
				}
			}
			if isInterrupted {
				runs[0].Process.Signal(os.Interrupt)
			}
			var read int64
			for rank, cmd := range runs {
				err := cmd.Wait()
				if rank == 0 {
					writeFile(t, filepath.Join(s.work, "gone"), "")
				}
				var sum runSummary
				if err != nil || json.Unmarshal(out[rank].Bytes(), &sum) != nil {
					text, _ := os.ReadFile(logs[rank])
					t.Errorf("rank %d: %v:\n%s%s", rank, err, text, out[rank].String())
					continue
				}
				read += sum.Sources[0].Status.Totals.SourceBytes
				if stays(rank) != (rank < 2) {
					t.Errorf("rank %d stayed: %v", rank, stays(rank))
				}
			}
			const dataset = 90 * 20 * int64(len("class0/000.txt"))
			if !isInterrupted && read != dataset || isInterrupted && read <= dataset {
				t.Errorf("%d bytes were read from the source of %d bytes", read, dataset)
			}
		})
	}
}
