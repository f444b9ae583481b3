package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// noRanges is a web server that sends each file whole, whatever the request.
type noRanges map[string][]byte

func (files noRanges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, ok := files[path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, len(data)))
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method == http.MethodGet {
		w.Write(data)
	}
}

// TestStreamsOnABadNetwork: on a network that cuts answers, resets connections and is slow, shards without random
// access give the right samples. LCACHE_STREAM_REQUESTS is the minimum number of requests, of each kind.
func TestStreamsOnABadNetwork(t *testing.T) {
	least := int64(40)
	if text := os.Getenv("LCACHE_STREAM_REQUESTS"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		least = n
	}
	plain, wants := map[string][]byte{}, map[string][]byte{}
	for s := range 3 {
		var members []string
		for i := range 40 {
			data := sourcetest.Content(byte(50*s+i), 10_000+300*i)
			members = append(members, fmt.Sprintf("c/%02d.bin=%s", i, data), fmt.Sprintf("c/%02d.cls=%d", i, i))
			wants[fmt.Sprintf("%d.tar/c/%02d", s, i)] = append(data, strconv.Itoa(i)...)
		}
		plain[fmt.Sprintf("%d.tar", s)] = shard(t, members...)
	}
	files, inBucket := noRanges{}, map[string][]byte{}
	for name, data := range plain {
		files[name], files[name+".gz"] = data, packed(t, "gz", data)
		inBucket["s/"+name+".zst"] = packed(t, "zst", data)
	}
	web := httptest.NewServer(files)
	t.Cleanup(web.Close)
	g := s3test.Start(t)
	g.Fill(t, inBucket)
	for name, c := range map[string]struct{ server, pattern, packing string }{
		"web, without ranges": {web.URL, "tar:%s/{0..2}.tar", ""},
		"web, packed":         {web.URL, "tar:%s/{0..2}.tar.gz", ".gz"},
		"bucket, packed":      {g.URL, "tar:s3://" + s3test.Bucket + "/s/{0..2}.tar.zst", ".zst"},
	} {
		t.Run(name, func(t *testing.T) {
			p := s3test.StartProxy(t, c.server)
			p.Add(t, "latency", 0.3, map[string]any{"latency": 5, "jitter": 5})
			p.Add(t, "limit_data", 0.25, map[string]any{"bytes": 150_000}) // bytes of a connection: bodies end early
			p.Add(t, "reset_peer", 0.05, map[string]any{"timeout": 3})
			pattern := strings.Replace(c.pattern, "%s", p.URL, 1)
			var requests, retries int64
			for begun := time.Now(); !t.Failed() && (requests < least || retries == 0 && time.Since(begun) < time.Minute); {
				n := readStreams(t, pattern, source.Options{Stream: true, Remote: source.Remote{S3: source.S3{Endpoint: p.URL, Region: s3test.Region}}}, c.packing, wants)
				requests, retries = requests+n.Requests, retries+n.Retries
				p.Enable(t, false) // otherwise connections without a toxic would soon carry everything
				p.Enable(t, true)
			}
			if retries == 0 {
				t.Errorf("%d requests: nothing went wrong, so nothing was tested", requests)
			}
			t.Logf("%d requests, %d retries", requests, retries)
		})
	}
}

// readStreams lists shards and reads their samples: each shard once in order, and some samples at random meanwhile.
// wants has the samples, by their names without the compression.
func readStreams(t *testing.T, pattern string, o source.Options, packing string, wants map[string][]byte) source.Requests {
	s, err := source.Open(pattern, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, entries, err := s.List(ctx, nil)
	if err != nil || len(entries) != len(wants) {
		t.Errorf("%d samples, %v", len(entries), err)
		return source.Requests{}
	}
	read := func(e sample.Entry) {
		dst := make([]byte, e.Size)
		err := s.Read(ctx, e, dst)
		if want := wants[strings.Replace(e.Name, packing+"/", "/", 1)]; err != nil || !bytes.Equal(dst, want) {
			t.Error(errors.Join(err, fmt.Errorf("%s: %d bytes, want %d, or other ones", e.Name, len(dst), len(want))))
		}
	}
	var wg sync.WaitGroup
	for from := 0; from < len(entries); from += 40 {
		wg.Go(func() {
			for _, e := range entries[from:][:40] {
				if read(e); t.Failed() {
					return
				}
			}
		})
	}
	wg.Go(func() { read(entries[rand.IntN(len(entries))]) })
	wg.Wait()
	n, _ := source.RequestsOf(s)
	return n
}
