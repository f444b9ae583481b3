package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/source/s3test"
)

// turnstile is a server before another one: it counts the objects that it lets through, and holds those after the first few until it is opened.
type turnstile struct {
	*httptest.Server
	mu   sync.Mutex // guards the fields that follow
	gets map[string]int
	left int // that are let through
	open chan struct{}
}

func newTurnstile(t *testing.T, server string) *turnstile {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	s := &turnstile{gets: map[string]int{}}
	s.set(1 << 30)
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // of a client that was killed
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "" {
			s.mu.Lock()
			s.gets[r.URL.Path]++
			s.left--
			held, open := s.left < 0, s.open
			s.mu.Unlock()
			if held {
				select {
				case <-open:
				case <-r.Context().Done():
					return
				}
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// set resets the counters, lets the waiting requests through, and then n more.
func (s *turnstile) set(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		close(s.open)
	}
	s.gets, s.left, s.open = map[string]int{}, n, make(chan struct{})
}

// asked is how many objects were asked for, and how often at most one of them was.
func (s *turnstile) asked() (total, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.gets {
		total, most = total+n, max(most, n)
	}
	return total, most
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// recorded reads the journals of a cache: the number of samples that begin in blocks on disk, the size of a block, and the number of segments. docs/format.md has the fields.
func (s *stage) recorded() (begun, block, segments int) {
	for _, name := range []string{"journal-0", "journal-1"} {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(s.root), "work/cache", name))
		if err != nil || len(b) < 88 {
			continue
		}
		field := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
		block, segments = max(block, field(72)), segments+field(60)
		for at := field(12); at+48 <= len(b) && field(at) == 0x314a4c7f; at += max(field(at+4), 48) {
			begun += field(at + 44)
		}
	}
	return begun, block, segments
}

// killBehind kills a program that reads through a turnstile, when the turnstile holds its requests and its log has samples. Then it opens the turnstile.
func (s *stage) killBehind(t *testing.T, cmd *exec.Cmd, way *turnstile, through int) {
	t.Helper()
	s.endBehind(t, cmd, way, through, syscall.SIGKILL, func(begun, _, _ int) bool { return begun > 0 })
}

// endBehind is killBehind by another signal, when the journals are as wanted.
func (s *stage) endBehind(t *testing.T, cmd *exec.Cmd, way *turnstile, through int, by syscall.Signal, wanted func(begun, block, segments int) bool) {
	t.Helper()
	until(t, "the program waits, and its log has samples", func() bool {
		total, _ := way.asked()
		return total > through && wanted(s.recorded())
	})
	syscall.Kill(-cmd.Process.Pid, by)
	cmd.Wait()
	way.set(1 << 30)
}

// answer runs a command that prints JSON, and decodes it.
func (s *stage) answer(t *testing.T, command string, to any) {
	t.Helper()
	out, errs, err := s.shell(command)
	if err == nil {
		err = json.Unmarshal([]byte(out), to)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, errs)
	}
}

// fillSet puts samples of 40,000 bytes into a bucket, each with its number again and again.
func fillSet(t *testing.T, g *s3test.Gateway, samples int) {
	t.Helper()
	files := map[string][]byte{}
	for i := range samples {
		files[fmt.Sprintf("set/c%d/%03d", i%3, i)] = bytes.Repeat(fmt.Appendf(nil, "%04d", i), 10_000)
	}
	g.Fill(t, files)
}

// An ingest of a bucket that is killed, or ended by Ctrl-C, goes on where it was: what its log has is not asked for again. Neither files, nor status or the log of a server have a secret.
func TestKilledIngestOfABucket(t *testing.T) {
	testenv.AnyIO(t)
	g := s3test.Start(t)
	const samples, through, size, jobs = 300, 150, 40_000, 4
	fillSet(t, g, samples)
	for _, by := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		s, way := newStage(t), newTurnstile(t, g.URL)
		flags := " --source s3://" + s3test.Bucket + "/set/ --cache cache --s3-endpoint-url " + way.URL + " --s3-region " + s3test.Region + " --source-hedge=false"
		way.set(through)
		cmd, errs := s.command("exec env LCACHE_IO=pread lcache ingest --quiet --jobs " + fmt.Sprint(jobs) + flags)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// All samples that were read reach the disk, except for each segment's last block, which is not full, and samples that are just being stored. A sample may begin in
		// an earlier block and end in that one. Ctrl-C writes the last blocks, too.
		least := through
		s.endBehind(t, cmd, way, through, by, func(begun, block, segments int) bool {
			if least = begun - segments; by == syscall.SIGINT {
				least = through - jobs
			}
			return begun > 0 && begun >= through-jobs-segments*(block/size+1)
		})
		if said := errs.String(); by == syscall.SIGINT && (cmd.ProcessState.ExitCode() != exitError || said != "lcache ingest: interrupted: stored samples stay in the cache; run the same command again to continue [LC020]\n") {
			t.Errorf("%v: %s", cmd.ProcessState, said)
		}
		var r ingest.Report
		s.answer(t, "lcache ingest --json"+flags, &r)
		total, most := way.asked()
		t.Logf("%v: %d of %d samples that were read were kept, want %d", by, r.Already, through, least)
		if r.Already < int64(least) || r.Already > through || int64(total) != samples-r.Already || most != 1 || r.StoredSamples != samples {
			t.Errorf("%v: %d samples were there, %d were asked for, one up to %d times; %d are stored", by, r.Already, total, most, r.StoredSamples)
		}
		if by == syscall.SIGKILL {
			s.findSecretsOfServer(t)
		}
	}
}

// TestKilledServerOfABucket: a server is killed in the middle of an epoch and starts again. The reader continues with the bytes of the bucket, and the server does not request the log's samples again.
func TestKilledServerOfABucket(t *testing.T) {
	testenv.AnyIO(t)
	g := s3test.Start(t)
	const samples, through = 300, 150
	fillSet(t, g, samples)
	s, way := newStage(t), newTurnstile(t, g.URL)
	writeFile(t, filepath.Join(filepath.Dir(s.root), "work", "read.py"), `import lcache

with lcache.connect("cache/lcache.sock") as job:
    for epoch in range(2):
        seen = set()
        for batch in job.epoch(epoch):
            for name, view in zip(batch.names, batch.samples):
                assert bytes(view) == b"%04d" % int(name[3:]) * 10_000, name
                seen.add(name)
        assert len(seen) == 300, len(seen)
`)
	if _, errs, err := s.shell("lcache ingest --quiet --no-prefill --cache cache --recipe torch.distributed_sampler --epochs 2 --batch-size 10 --source s3://" + s3test.Bucket +
		"/set/ --s3-endpoint-url " + way.URL + " --s3-region " + s3test.Region + " --source-hedge=false"); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	way.set(through)
	server, _ := s.command("exec env LCACHE_IO=pread lcache serve --quiet --cache cache")
	s.untilLine(server)
	reader, errs := s.command("exec python read.py")
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	s.killBehind(t, server, way, through)
	var kept cache.VerifyReport
	s.answer(t, "lcache verify --cache cache --json", &kept)
	server, _ = s.command("exec lcache serve --quiet --cache cache")
	stop := s.untilLine(server)
	if err := reader.Wait(); err != nil {
		t.Errorf("the reader: %v: %s", err, errs)
	}
	if err := stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
	total, most := way.asked()
	t.Logf("%d of %d samples that were read were kept", kept.Good, through)
	if kept.Good == 0 || kept.Good > through || total != samples-kept.Good || most != 1 {
		t.Errorf("%d samples were kept, %d were asked for, one up to %d times", kept.Good, total, most)
	}
}

// findSecretsOfServer looks for the gateway's credentials in the output and the answers of a server of the cache.
func (s *stage) findSecretsOfServer(t *testing.T) {
	t.Helper()
	cmd, logs := s.command("exec lcache serve --cache cache --metrics 127.0.0.1:0")
	line, stop := s.firstLine(cmd)
	said := line + scrape(t, line[strings.LastIndex(line, " ")+1:])
	for _, ask := range []string{"lcache status --json", "lcache status", "lcache ls . --json", "ls -R .", "cat cache/job.json", "lcache verify --cache cache 2>&1 || true"} {
		out, errs, err := s.shell(ask)
		if err != nil {
			t.Errorf("%s: %v: %s", ask, err, errs)
		}
		said += out + errs
	}
	if err := stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
	said += logs.String()
	if !strings.Contains(said, s3test.Bucket) || !strings.Contains(logs.String(), "level=") {
		t.Errorf("nothing was said that could have a secret: %s", said)
	}
	for _, secret := range s3test.Secrets {
		if strings.Contains(said, secret) {
			t.Errorf("a server says %s:\n%s", secret, said)
		}
	}
}
