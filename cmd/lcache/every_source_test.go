package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/cache"
	"lcache/doctor"
	"lcache/planner"
	"lcache/s3/s3test"
)

// Every kind of source over a network is held against its cache, byte for byte; what has changed there is found; and doctor reads it.
func TestEverySourceIsVerified(t *testing.T) {
	g := s3test.Start(t)
	files, list := map[string][]byte{}, ""
	for i := range 6 {
		name := fmt.Sprintf("c%d/%d", i%2, i)
		files["photos/"+name] = bytes.Repeat([]byte(name), 20)
		list += name + "\n"
	}
	shards := t.TempDir()
	makeShards(t, shards+"/x.tar")
	shard, err := os.ReadFile(filepath.Join(shards, "x.tar"))
	if err != nil {
		t.Fatal(err)
	}
	files["x.tar"], files["photos/LIST"] = shard, []byte(list)
	var mu sync.Mutex // guards files
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		data := files[strings.TrimPrefix(r.URL.Path, "/")]
		mu.Unlock()
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, len(data)+int(data[len(data)-1])))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	defer srv.Close()
	inBucket := map[string][]byte{"x.tar": shard}
	for name, data := range files {
		if name != "photos/LIST" {
			inBucket[name] = data
		}
	}
	g.Fill(t, inBucket)
	put := func(name string, data []byte) {
		if err := g.Put(name, data); err != nil {
			t.Error(err)
		}
		mu.Lock()
		files[name] = data
		mu.Unlock()
	}
	bucket := " --s3-endpoint-url " + g.URL + " --s3-region " + s3test.Region
	s := newStage(t)
	kinds := []struct {
		src, flags string
		samples    int
		changes    string // what of the source
		different  int    // of the samples, then
	}{
		{"s3://" + s3test.Bucket + "/photos/", bucket, 6, "photos/c0/2", 1},
		{srv.URL + "/photos/LIST", "", 6, "photos/c0/2", 1},
		{"tar:s3://" + s3test.Bucket + "/x.tar", bucket, 30, "x.tar", 30},
		{"tar:" + srv.URL + "/x.tar", "", 30, "x.tar", 30},
	}
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
	out, errs, err := s.shell("lcache doctor --json --source " + kinds[2].src + bucket)
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Facts.Reading.Kind != "S3" || r.Facts.Reading.Files != 30 {
		t.Errorf("%v, %s: %s", err, errs, out)
	}
	if err != nil {
		t.Errorf("doctor: %v: %s", err, errs)
	}
	for _, k := range kinds {
		out, errs, err = s.shell("lcache plan --json --time 5s --epochs 2 --source-bw 1GB/s --budget 1GB --read-bw 1GB/s --write-bw 1GB/s --read-iops unlimited --batch-size 2 --consumer unlimited --source " + k.src + k.flags)
		var r planner.Report
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil || r.Facts["samples"] != float64(k.samples) {
			t.Errorf("plan of %s: %v: %s: %s", k.src, err, errs, out)
		}
	}
	put("photos/c0/2", bytes.Repeat([]byte("C0/3"), 20))
	put("x.tar", append(shard, make([]byte, 512)...))
	for i, k := range kinds {
		if r := verify(i, ""); r.Different != k.different || r.Good != k.samples || r.Uncompared != 0 {
			t.Errorf("%s: %s has changed: %+v", k.src, k.changes, r)
		}
	}
}
