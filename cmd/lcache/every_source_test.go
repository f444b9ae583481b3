package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/cmd/lcache/internal/planner"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/source"
	"lcache/source/s3test"
)

// everySource is one dataset behind each kind of source, and a stage whose commands reach it.
type everySource struct {
	*stage
	kinds []sourceKind
	shard []byte
	put   func(name string, data []byte) // changes an object, wherever it lies
}

type sourceKind struct {
	src, flags string
	kind       string // what doctor calls it
	samples    int
	changes    string // what of the source
	different  int    // of the samples, then
}

func newEverySource(t *testing.T) *everySource {
	t.Helper()
	g := s3test.Start(t)
	here := t.TempDir()
	makeShards(t, here+"/x.tar")
	shard, err := os.ReadFile(filepath.Join(here, "x.tar"))
	if err != nil {
		t.Fatal(err)
	}
	records := bytes.Repeat([]byte("20 bytes of a record"), 6)
	writeFile(t, filepath.Join(here, "r.bin"), string(records))
	files, list := map[string][]byte{"x.tar": shard, "r.bin": records}, ""
	for i := range 6 {
		name := fmt.Sprintf("c%d/%d", i%2, i)
		files["photos/"+name] = bytes.Repeat([]byte(name), 20)
		list += name + "\n"
		if err := os.MkdirAll(filepath.Join(here, "photos", filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(here, "photos", name), string(files["photos/"+name]))
	}
	g.Fill(t, files)
	var mu sync.Mutex // guards files
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		data := files[strings.TrimPrefix(r.URL.Path, "/")]
		mu.Unlock()
		if r.URL.Path == "/photos/LIST" {
			data = []byte(list)
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, len(data)+int(data[len(data)-1])))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(srv.Close)
	bucket := " --s3-endpoint-url " + g.URL + " --s3-region " + s3test.Region
	return &everySource{stage: newStage(t), shard: shard, kinds: []sourceKind{
		{"s3://" + s3test.Bucket + "/photos/", bucket, "S3", 6, "photos/c0/2", 1},
		{srv.URL + "/photos/LIST", "", "HTTP", 6, "photos/c0/2", 1},
		{"tar:s3://" + s3test.Bucket + "/x.tar", bucket, "S3", 30, "x.tar", 30},
		{"tar:" + srv.URL + "/x.tar", "", "HTTP", 30, "x.tar", 30},
		{"bin:s3://" + s3test.Bucket + "/r.bin", bucket + " --record-bytes 20", "S3", 6, "r.bin", 6},
		{"bin:" + srv.URL + "/r.bin", " --dtype float32 --shape 5", "HTTP", 6, "r.bin", 6},
		{"bin:" + here + "/r.bin", " --record-bytes 20", "", 6, "r.bin", 6},
		{here + "/photos", "", "", 6, "photos/c0/2", 1},
		{"tar:" + here + "/x.tar", "", "", 30, "x.tar", 30},
	}, put: func(name string, data []byte) {
		if err := errors.Join(g.Put(name, data), os.WriteFile(filepath.Join(here, name), data, 0o600)); err != nil {
			t.Error(err)
		}
		mu.Lock()
		files[name] = data
		mu.Unlock()
	}}
}

// document decodes the JSON that a command prints.
func (s *everySource) document(t *testing.T, line string, into any) (errs string) {
	t.Helper()
	out, errs, err := s.shell(line)
	if e := json.Unmarshal([]byte(out), into); e != nil {
		t.Fatalf("%s: %v: %s", line, err, errs)
	}
	return errs
}

// TestEverySourceIsListed: lcache ls names the source of each cache as it was given; run takes each kind, and doctor reads it; a share of each is a part of it, and the next share is the rest.
func TestEverySourceIsListed(t *testing.T) {
	testenv.AnyIO(t)
	s := newEverySource(t)
	want := map[string]string{}
	for i, k := range s.kinds {
		var shares [2]ingest.Report
		for part := range shares {
			s.document(t, fmt.Sprintf("lcache ingest --json --share %d/2 --source %s --cache caches/of-%d%s", part, k.src, i, k.flags), &shares[part])
		}
		whole := shares[1].ReadSamples == 0 // a share of shards is whole shards: here the one there is
		if read := shares[0].ReadSamples + shares[1].ReadSamples; int(read) != k.samples || whole != (source.Scheme(k.src) != "") {
			t.Errorf("%s: the shares are %d and %d samples of %d", k.src, shares[0].ReadSamples, shares[1].ReadSamples, k.samples)
		}
		want[fmt.Sprintf("of-%d", i)] = k.src
		if out, errs, err := s.shell(fmt.Sprintf("lcache run --quiet --source %s --cache caches/of-%d%s -- echo ran", k.src, i, k.flags)); err != nil || out != "ran\n" {
			t.Errorf("run of %s: %v, %s: %s", k.src, err, out, errs)
		}
		var r doctor.Report
		if errs := s.document(t, "lcache doctor --json --source "+k.src+k.flags, &r); r.Facts.Reading.Files != k.samples || k.kind != "" && r.Facts.Reading.Kind != k.kind {
			t.Errorf("doctor of %s: %d samples of a source of the kind %q: %s", k.src, r.Facts.Reading.Files, r.Facts.Reading.Kind, errs)
		}
	}
	var l listing
	s.document(t, "lcache ls --json caches", &l)
	got := map[string]string{}
	for _, c := range l.Caches {
		got[filepath.Base(c.Dir)] = c.Source
	}
	if !maps.Equal(got, want) {
		t.Errorf("ls: %v\nwant %v", got, want)
	}
	out, _, err := s.shell("lcache ls caches")
	for _, k := range s.kinds {
		if err != nil || !strings.Contains(out, " "+k.src+" ") {
			t.Errorf("ls lacks %s, %v:\n%s", k.src, err, out)
		}
	}
}

// TestEverySourceIsVerified: verify compares every kind of source with its cache byte for byte and finds changed samples. lcache plan counts the samples of each.
func TestEverySourceIsVerified(t *testing.T) {
	testenv.AnyIO(t)
	s := newEverySource(t)
	kinds := s.kinds
	for i, k := range kinds {
		if _, errs, err := s.shell(fmt.Sprintf("lcache ingest --quiet --source %s --cache cache%d%s", k.src, i, k.flags)); err != nil {
			t.Fatalf("%s: %v: %s", k.src, err, errs)
		}
	}
	verify := func(i int, flags string) (r cache.VerifyReport) {
		out, errs, _ := s.shell(fmt.Sprintf("lcache verify --json --cache cache%d --against %s%s", i, kinds[i].src, flags))
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: %v: %s", kinds[i].src, err, errs)
		}
		return r
	}
	for i, k := range kinds {
		if r := verify(i, ""); r.Good != k.samples || r.Different+r.Uncompared != 0 {
			t.Errorf("%s: %+v", k.src, r)
		}
	}
	if r := verify(0, " --s3-unsigned"); r.Uncompared != kinds[0].samples {
		t.Errorf("read without credentials: %+v", r)
	}
	for _, k := range kinds {
		out, errs, err := s.shell("lcache plan --json --time 1500ms --epochs 2 --source-bw 1GB/s --budget 1GB --read-bw 1GB/s --write-bw 1GB/s --read-iops unlimited --batch-size 2 --consumer unlimited --source " + k.src + k.flags)
		var r planner.Report
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil || r.Facts["samples"] != float64(k.samples) {
			t.Errorf("plan of %s: %v: %s: %s", k.src, err, errs, out)
		}
	}
	s.put("photos/c0/2", bytes.Repeat([]byte("C0/3"), 20))
	s.put("x.tar", append(slices.Clone(s.shard), make([]byte, 512)...))
	s.put("r.bin", bytes.Repeat([]byte("21 bytes of a record,"), 6))
	for i, k := range kinds {
		if r := verify(i, ""); r.Different != k.different || r.Good != k.samples || r.Uncompared != 0 {
			t.Errorf("%s: %s has changed: %+v", k.src, k.changes, r)
		}
	}
}
