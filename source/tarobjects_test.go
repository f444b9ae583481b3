package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// farShelf is a shelf over a network: a shard that is written again with the same bytes may have the same version.
type farShelf struct{ *shelf }

func (farShelf) Lacks() []string { return []string{sourcetest.ReplacedAlike} }

// braces returns a pattern for all shards of a conformance test.
func braces(files map[string][]byte) string {
	shards := map[string]bool{}
	for name := range files {
		if sampleOf(name) != "" {
			shards[shardOf(name)] = true
		}
	}
	var list []string
	for name := range maps.Keys(shards) {
		list = append(list, strings.NewReplacer(",", `\,`, "{", `\{`, "}", `\}`, `\`, `\\`).Replace(name))
	}
	if len(list) == 1 {
		return list[0]
	}
	return "{" + strings.Join(list, ",") + "}"
}

func TestTarS3(t *testing.T) {
	g := s3test.Start(t)
	var n atomic.Int64
	sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		b := bucket{g, fmt.Sprintf("shards %d/", n.Add(1))}
		s := (&shelf{put: b.Write, files: maps.Clone(files)}).fill(t)
		return openRemote(t, "tar:s3://"+s3test.Bucket+"/"+b.prefix+braces(files), source.Options{Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}), farShelf{s}
	})
}

// serveShards is a web server with shards below /data/.
func serveShards(t *testing.T, files map[string][]byte) (*site, string) {
	t.Helper()
	s := &site{files: map[string][]byte{}, etags: map[string]int{}, ranges: true}
	for name, data := range files {
		s.Write(name, data)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, srv.URL + "/data/"
}

func TestTarWeb(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		web, url := serveShards(t, nil)
		s := (&shelf{put: web.Write, files: maps.Clone(files)}).fill(t)
		return openRemote(t, "tar:"+url+braces(files), source.Options{}), farShelf{s}
	})
}

// TestTarWebAsAFolder: a server and a folder with the same shards give the same listing and samples. The server takes
// a HEAD for each shard, then large pieces.
func TestTarWebAsAFolder(t *testing.T) {
	var members []string
	for i := range 200 {
		members = append(members, fmt.Sprintf("d/%03d.cls=%d", i, i), fmt.Sprintf("d/%03d.jpg=%s", i, strings.Repeat("x", 40*i)))
	}
	big := shard(t, "a.jpg="+strings.Repeat("b", 9<<20), "a.cls=1", "b.jpg="+strings.Repeat("c", 600<<10), "b.cls=2")
	files := map[string][]byte{"x:0.tar": shard(t, members...), "x:1.tar": big}
	tr := newTree(t, files)
	_, url := serveShards(t, files)
	opts := source.Options{Kept: filepath.Join(t.TempDir(), "shards"), Remote: source.Remote{NoHedge: true}}
	near, far := openTar(t, tr.dir+"/x:{0..1}.tar", source.Options{}), openRemote(t, "tar:"+url+"x:{0..1}.tar", opts)
	_, want, err := near.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := far.List(t.Context(), nil)
	if err != nil || shapeOf(got) != shapeOf(want) || len(got) != 202 {
		t.Fatalf("%d samples, %v; want %d", len(got), err, len(want))
	}
	const listing = 2 + 1 + 1 + 2 // HEADs; the check for ranges; pieces of 4 MiB of the small shard; the beginning of the large one, then the part after the large member
	if n, _ := source.RequestsOf(far); n.Requests < listing || n.Requests > listing+1 || n.Retries != 0 {
		t.Errorf("the listing took %+v", n)
	}
	before, _ := source.RequestsOf(far)
	for i, e := range got {
		a, b := make([]byte, e.Size), make([]byte, e.Size)
		if err := errors.Join(near.Read(t.Context(), want[i], a), far.Read(t.Context(), e, b)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v, or other bytes", e.Name, err)
		}
	}
	if n, _ := source.RequestsOf(far); n.Requests-before.Requests != 201+2 { // the large one takes two ranges, and its label is in the second
		t.Errorf("%d requests to read %d samples one by one", n.Requests-before.Requests, len(got))
	}
	again := openRemote(t, "tar:"+url+"x:{0..1}.tar", opts)
	if _, got, err = again.List(t.Context(), nil); err != nil || shapeOf(got) != shapeOf(want) {
		t.Fatal(err)
	}
	if n, _ := source.RequestsOf(again); n.Requests != 3 {
		t.Errorf("with indexes that are kept the listing took %+v, want a HEAD for each shard, and one to see that there are ranges", n)
	}
}

// TestTarWebChanged: a shard that is written during a listing or after it is never read.
func TestTarWebChanged(t *testing.T) {
	web, url := serveShards(t, map[string][]byte{"a.tar": shard(t, "x.cls=1", "x.jpg=one")})
	s := openRemote(t, "tar:"+url+"a.tar", source.Options{})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	web.Write("a.tar", shard(t, "x.cls=1", "x.jpg=two"))
	e := entries[0]
	wantText := fmt.Sprintf("read sample %q: shard %q: changed since ingest: run ingest again (it has another version)", e.Name, "a.tar")
	if err := s.Read(t.Context(), e, make([]byte, e.Size)); !errors.Is(err, source.ErrChanged) || err.Error() != wantText {
		t.Errorf("changed: %v\nwant %s", err, wantText)
	}
	if err := s.(source.Sharded).ReadTogether(t.Context(), []sample.Entry{e}, [][]byte{make([]byte, e.Size)}); !errors.Is(err, source.ErrChanged) {
		t.Errorf("changed, read together: %v", err)
	}
	web.Remove("a.tar")
	if err := s.Read(t.Context(), e, make([]byte, e.Size)); !errors.Is(err, source.ErrGone) {
		t.Errorf("gone: %v", err)
	}
	// Between the request for its version and its first bytes:
	web.Write("a.tar", shard(t, "x.jpg=one"))
	moving := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.ServeHTTP(w, r)
		if r.Method == http.MethodHead {
			web.Write("a.tar", shard(t, "x.jpg=two"))
		}
	}))
	defer moving.Close()
	if _, _, err := openRemote(t, "tar:"+moving.URL+"/data/a.tar", source.Options{}).List(t.Context(), nil); !errors.Is(err, source.ErrChanged) || !strings.Contains(err.Error(), `shard "a.tar": changed`) {
		t.Errorf("changed while it is listed: %v", err)
	}
}

// TestTarWebErrors: every error of shards over a network, word for word. URL stands for the server.
func TestTarWebErrors(t *testing.T) {
	good := shard(t, "x.jpg")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/s-0.tar": // does not support ranges
			w.Header().Set("ETag", `"1"`)
			r.Header.Del("Range")
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(good[:1100]))
		case "/z-0.tar.gz":
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(good))
		case "/n-0.tar", "/n-0.tar.gz":
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(good))
		case "/w-0.tar":
			w.Header().Set("ETag", `W/"1"`) // a weak ETag may be the same for other bytes
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(good))
		case "/t-0.tar":
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(good[:1100]))
		case "/d-0.tar":
			http.Error(w, "no", http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	const noVersion = "the server tells neither a strong ETag nor the time of its last change (Last-Modified), so a shard that is replaced would be read by the index of the one before: let the server tell one of them, or download the shards and name the copies"
	for pattern, want := range map[string]string{
		"{m,s,q}-0.tar": `shard "m-0.tar" is missing, and so 1 more: put it there, or correct the pattern`,
		"s-0.tar":       `shard "s-0.tar" is truncated: its member "x.jpg" ends at byte 1517, and the shard has 1100: copy or write it again`,
		"z-0.tar.gz":    `shard "z-0.tar.gz" is not what its name says: it is not gzip: check the pattern`,
		"n-0.tar":       `shard "n-0.tar": ` + noVersion,
		"w-0.tar":       `shard "w-0.tar": ` + noVersion,
		"n-0.tar.gz":    `shard "n-0.tar.gz": ` + noVersion,
		"t-0.tar":       `shard "t-0.tar" is truncated: its member "x.jpg" ends at byte 1517, and the shard has 1100: copy or write it again`,
		"d-0.tar":       `shard "d-0.tar": HOST answers 403: lcache reads only public files from a web server`,
		"s-*.tar":       `shard "s-*.tar" has one of the characters *?[# in its name: over a network, only braces can name several shards`,
		"{s-0,../x}":    `shard "../x" leads out of its folder: write the folder that all shards have in common before the first brace`,
		"{a,b}.tar.gz":  `shard "a.tar.gz" is compressed, and samples can't be read at random in it: unpack it (gunzip) and name the .tar, or give --stream to read it once, front to back`,
	} {
		_, _, err := openRemote(t, "tar:"+srv.URL+"/"+pattern, source.Options{Stream: strings.HasPrefix(pattern, "z") || pattern == "n-0.tar.gz"}).List(t.Context(), nil)
		want := fmt.Sprintf("list source %q: ", "tar:"+srv.URL+"/"+pattern) + strings.ReplaceAll(want, "HOST", host)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", pattern, err, want)
		}
	}
	for src, want := range map[string]string{
		"tar:s3://b/":                     `open source "tar:s3://b/": it names no shard: give a pattern such as tar:/data/train-{000..146}.tar`,
		"tar:s3://{b,c}/x.tar":            `open source "tar:s3://{b,c}/x.tar": the part before its first brace has no folder: give a pattern such as tar:s3://BUCKET/train-{000..146}.tar or tar:https://HOST/train-{000..146}.tar`,
		"tar:https://host/{a,b}.tar?hush": `open source "tar:https://host/{a,b}.tar": it has a query or a fragment: give an address without one`,
		"tar:https://me:hush@host/a.tar":  `open source "tar:https://host/a.tar": it has a user or a password: only servers that need none can be read`,
		"tar:https://me:hush@host/":       `open source "tar:https://host/": it names no shard: give a pattern such as tar:/data/train-{000..146}.tar`,
	} {
		if _, err := source.Open(src, source.Options{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", src, err, want)
		}
	}
}

// TestManyMissingObjects: a listing requests no more shards after very many that are missing.
func TestManyMissingObjects(t *testing.T) {
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.NotFound(w, r)
	}))
	defer srv.Close()
	_, _, err := openRemote(t, "tar:"+srv.URL+"/{1000..5999}.tar", source.Options{}).List(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), `shard "1000.tar" is missing, and so `) || !strings.Contains(err.Error(), " of 5000: ") || asked.Load() > 2000 {
		t.Errorf("%v, after %d requests", err, asked.Load())
	}
}
