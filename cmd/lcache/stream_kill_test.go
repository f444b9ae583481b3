package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// pythonServer serves a folder by Python's own server, which gives no ranges.
func pythonServer(t *testing.T, folder string) (url string) {
	t.Helper()
	cmd := exec.Command("python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", folder)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Skipf("no server of Python's: %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	port := regexp.MustCompile(`port (\d+)`).FindStringSubmatch(line)
	if port == nil {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return "http://127.0.0.1:" + port[1]
}

// An ingest of shards on a server without ranges that is killed goes on where it was: no shard is asked for again that the log has whole, and the cache is the source, byte for byte.
func TestKilledIngestWithoutRanges(t *testing.T) {
	testenv.AnyIO(t)
	folder, shards, each := t.TempDir(), 40, 5
	for i := range shards {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for k := range each {
			data := bytes.Repeat(fmt.Appendf(nil, "%02d%02d", i, k), 10_000)
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%03d.bin", k), Size: int64(len(data)), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			w.Write(data)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, fmt.Sprintf("s-%d.tar", i)), b.String())
	}
	s, way := newStage(t), newTurnstile(t, pythonServer(t, folder))
	src := fmt.Sprintf("tar:%s/s-{0..%d}.tar", way.URL, shards-1)
	flags := " --source '" + src + "' --cache cache"
	const through = 20 // shards whose samples are read before it is killed
	way.set(1 + shards + through)
	cmd, _ := s.command("exec env LCACHE_IO=pread lcache ingest --quiet --jobs 1" + flags)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.killBehind(t, cmd, way, 1+shards+through)
	var r ingest.Report
	s.answer(t, "lcache ingest --json"+flags, &r)
	total, most := way.asked()
	t.Logf("%d samples were kept of %d shards that were read", r.Already, through)
	// The kill has lost the tails of at most five segments. At both ends of a tail, a shard may be only partly kept.
	whole := max(0, int(r.Already)-5*2*(each-1)) / each
	if r.Already == 0 || r.StoredSamples != shards*each || total > 1+shards-whole || most > 1 {
		t.Errorf("%d samples were there, %d GETs went on, one shard's up to %d times; %d are stored", r.Already, total, most, r.StoredSamples)
	}
	var v cache.VerifyReport
	s.answer(t, "lcache verify --json --cache cache --against '"+src+"'", &v)
	if v.Good != shards*each || v.Different+v.Uncompared > 0 {
		t.Errorf("verify: %+v", v)
	}
}
