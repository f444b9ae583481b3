package ingest_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// tarOf returns a shard of samples, each with a part bin of size bytes and a label.
func tarOf(t *testing.T, seed byte, samples, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	for i := range samples {
		add(fmt.Sprintf("%04d.bin", i), sourcetest.Content(seed+byte(i), size))
		add(fmt.Sprintf("%04d.cls", i), fmt.Append(nil, i%7))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestShardsInABucket: shards in a bucket cost about as much as predicted: a HEAD each, the requests for their
// indexes, then large pieces. Later only changed shards are read.
func TestShardsInABucket(t *testing.T) {
	g := s3test.Start(t)
	total := int64(0)
	for i := range 3 {
		b := tarOf(t, byte(i), 50, 50_000)
		total += int64(len(b))
		g.Fill(t, map[string][]byte{fmt.Sprintf("set/t-%02d.tar", i): b})
	}
	dir := filepath.Join(t.TempDir(), "cache")
	var log bytes.Buffer
	var costs []ingest.Cost
	o := ingest.Options{Source: "tar:s3://" + s3test.Bucket + "/set/t-{00..02}.tar", Dirs: []string{dir}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}, NoHedge: true}, Cost: func(c ingest.Cost) { costs = append(costs, c) }}
	want := ingest.Cost{Listed: 4, Shards: 3, Bytes: total, Index: 3, Gets: 3}

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
	const across = 1 // a piece that begins in one shard and ends in the next is two requests
	if len(costs) != 1 || costs[0] != want || r.Remote.Requests != want.Listed+want.Index+want.Gets+across || r.StoredSamples != 150 {
		t.Errorf("told %+v before, want %+v; asked %+v, stored %d", costs, want, r.Remote, r.StoredSamples)
	}

	o.Remote = source.Remote{} // the settings of the first ingest are stored
	if r, err = ingest.Run(t.Context(), o); err != nil || r.Remote.Requests != want.Listed || r.Changed || len(costs) != 1 {
		t.Errorf("nothing has changed: %+v asked, %v; want %d requests", r.Remote, err, want.Listed)
	}
	if err := g.Put("set/t-01.tar", tarOf(t, 99, 50, 50_000)); err != nil {
		t.Fatal(err)
	}
	if r, err = ingest.Run(t.Context(), o); err != nil || r.ChangedSamples != 50 || r.Remote.Requests != want.Listed+2 {
		t.Errorf("one shard has changed: %d samples, %+v asked, %v", r.ChangedSamples, r.Remote, err)
	}
	findSecrets(t, dir, log.String())
}
