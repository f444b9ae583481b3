package engine

import (
	"archive/tar"
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/store/ingest"
)

// TestTarFigures measures local shards on this machine: cat to /dev/null, cat to a file, the headers alone, and an ingest that knows the headers, in turn, each with a cold cache. scripts/bench-sources runs it.
func TestTarFigures(t *testing.T) {
	mb, rounds := figureSizes(t)
	dir := t.TempDir()
	count := max(1, mb/110)
	var shards []string
	total := 0.0
	for i := range count {
		path := filepath.Join(dir, fmt.Sprintf("s-%03d.tar", i))
		shards, total = append(shards, path), total+writeShard(t, path, i)
	}
	cold := func() {
		for _, path := range shards {
			f, err := os.Open(path)
			if err == nil {
				err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	shell := func(command string) float64 {
		cold()
		began := time.Now()
		if out, err := exec.Command("sh", append([]string{"-c", command, "sh"}, shards...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		return time.Since(began).Seconds()
	}
	f := sourceFigures{}
	add := func(name string, value float64) { f[name] = append(f[name], value) }
	copied := filepath.Join(dir, "copy")
	for range rounds {
		nowhere := shell(`cat "$@" > /dev/null`)
		add("1 cat to nowhere, MB/s", total/nowhere)
		toFile := shell(`cat "$@" > ` + copied + ` && sync ` + copied)
		add("2 cat to a file, and sync, MB/s", total/toFile)
		if err := os.Remove(copied); err != nil {
			t.Fatal(err)
		}
		o := ingest.Options{Source: fmt.Sprintf("tar:%s/s-{000..%03d}.tar", dir, count-1), Dirs: []string{filepath.Join(dir, "cache")}, Job: samplerJob(1, 256, 1, false), Memory: 512 << 20, IO: testIO(), NoPrefill: true}
		timed := func() (*ingest.Report, float64) {
			cold()
			began := time.Now()
			r, err := ingest.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			return r, time.Since(began).Seconds()
		}
		_, headers := timed()
		add("3 the headers alone, and making the cache, MB/s", total/headers)
		o.NoPrefill = false
		r, took := timed()
		add("4 ingest, the headers known, MB/s", total/took)
		add("4 ingest, times cat to nowhere", nowhere/took)
		add("4 ingest, times cat to a file", toFile/took)
		add("4 ingest, the reading and writing alone, times cat to a file", toFile/r.ReadSeconds)
		if err := os.RemoveAll(o.Dirs[0]); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d shards, %.0f MB, medians of %d rounds:%s", count, total, rounds, f)
}

// writeShard writes 1,000 samples with a jpg of 104 KB, a label and a json, and returns how many MB that are. It ends when they are on disk.
func writeShard(t *testing.T, path string, seed int) float64 {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	b := bufio.NewWriterSize(f, 1<<20)
	w := tar.NewWriter(b)
	add := func(name string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		key := fmt.Sprintf("%04d%04d", seed, i)
		add(key+".cls", fmt.Append(nil, i%1000))
		add(key+".jpg", pseudo(seed*1000+i, 104_000))
		add(key+".json", fmt.Appendf(nil, `{"key": %q}`, key))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return float64(info.Size()) / 1e6
}
