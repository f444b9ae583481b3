package ingest_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// TestBucket: a bucket is read once, with as many requests as predicted. Its complete cache needs no listing. No
// secret is written anywhere.
func TestBucket(t *testing.T) {
	g := s3test.Start(t)
	files := map[string][]byte{}
	for i := range 60 {
		files[fmt.Sprintf("set/c%d/%d", i%3, i)] = sourcetest.Content(byte(i), 1000*i)
	}
	files["set/c0/large"] = sourcetest.Content(7, 9<<20) // two ranges
	g.Fill(t, files)
	dir := filepath.Join(t.TempDir(), "cache")
	var log bytes.Buffer
	var costs []ingest.Cost
	o := ingest.Options{Source: "s3://" + s3test.Bucket + "/set", Dirs: []string{dir}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}, NoHedge: true}, Cost: func(c ingest.Cost) { costs = append(costs, c) }}
	total := int64(9<<20 + 1000*59*60/2)
	want := ingest.Cost{Listed: 1, Gets: 61, Samples: 61, Bytes: total} // c0/0 is empty and takes none, the large one takes two

	dry := o
	dry.DryRun = true
	if r, err := ingest.Run(t.Context(), dry); err != nil || *r.Cost != want {
		t.Fatalf("dry run: %+v, %v; want %+v", r, err, want)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the dry run made the cache's folder")
	}

	r, err := ingest.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want.Samples-- // the empty sample is not in the log
	if len(costs) != 1 || costs[0] != want || r.Remote.Requests != want.Listed+want.Gets || r.Remote.Retries != 0 || r.StoredSamples != 60 {
		t.Errorf("told %+v before, want %+v; asked %+v, stored %d", costs, want, r.Remote, r.StoredSamples)
	}
	record, err := cache.ReadRecord(dir)
	if err != nil || !record.Complete || record.Listed.IsZero() || record.Remote.S3.Endpoint != g.URL || record.Source != "s3://training/set/" {
		t.Errorf("record %+v, %v", record, err)
	}

	// From here on, the settings of the first ingest are stored.
	o.Remote = source.Remote{}
	o.Complete, o.NoPrefill = true, true
	if r, err = ingest.Run(t.Context(), o); err != nil || r.Remote.Requests != 0 || r.Samples != 61 || r.Changed {
		t.Errorf("a complete cache: got requests %+v, %v; want none", r.Remote, err)
	}
	if !strings.Contains(log.String(), "not listed again") {
		t.Errorf("the log does not say so: %s", log.String())
	}
	if err := g.Put("set/c1/new", []byte("new")); err != nil {
		t.Fatal(err)
	}
	o.Complete = false
	if r, err = ingest.Run(t.Context(), o); err != nil || r.Remote.Requests != 1 || r.AddedSamples != 1 {
		t.Errorf("listed again: %+v, %v; want one more sample from one request", r, err)
	}
	if record, err = cache.ReadRecord(dir); err != nil || record.Complete {
		t.Errorf("the record calls the cache complete, but it lacks a sample: %v", err)
	}

	// A server may read with other settings, and stores none of them. A switch that is explicitly off stays off.
	for _, unsigned := range []bool{true, false} {
		c, err := cache.Open(cache.Options{Dirs: []string{dir}, Remote: source.Remote{S3: source.S3{Unsigned: unsigned}}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.Manifest.Entry(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Source.Read(t.Context(), e, make([]byte, e.Size)); unsigned != (err != nil) {
			t.Errorf("read %s, unsigned %t: %v", e.Name, unsigned, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	o.Remote.Given = source.NoHedge
	if _, err = ingest.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if record, err = cache.ReadRecord(dir); err != nil || record.Remote.NoHedge || record.Remote.S3.Unsigned || record.Remote.S3.Endpoint != g.URL {
		t.Errorf("record %+v, %v: want the settings without no_hedge", record.Remote, err)
	}

	o.Remote.S3.Endpoint = "http://127.0.0.1:1"
	if _, err = ingest.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is the cache of s3://training/set/ at "+g.URL+", not at http://127.0.0.1:1") {
		t.Errorf("the same bucket elsewhere: %v", err)
	}
	findSecrets(t, dir, log.String())
}

// findSecrets searches for the gateway's credentials in all files and file names of a cache, and in a log.
func findSecrets(t *testing.T, dir, log string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, secret := range s3test.Secrets {
			if seen++; strings.Contains(path, secret) || bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s has %s", path, secret)
			}
		}
		return err
	})
	if err != nil || seen < 8 {
		t.Errorf("looked %d times, %v", seen, err)
	}
	for _, secret := range s3test.Secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %s:\n%s", secret, log)
		}
	}
}
