package source_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// TestBadNetwork: on a network that cuts answers, resets connections and is slow, every read gives the right bytes,
// and none hangs. LCACHE_REQUESTS is the minimum number of requests. In a long run, connections also stall.
func TestBadNetwork(t *testing.T) {
	least := int64(480)
	if text := os.Getenv("LCACHE_REQUESTS"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		least = n
	}
	g := s3test.Start(t)
	files := map[string][]byte{}
	for i := range 120 {
		files[fmt.Sprintf("c/%03d", i)] = sourcetest.Content(byte(i), 3000*i)
	}
	small, readers := len(files), 16
	if least > 10_000 { // large ones in parallel, so that the limit of bytes is reached
		for i := range 10 {
			files[fmt.Sprintf("large/%d", i)] = sourcetest.Content(byte(200+i), 9<<20)
		}
		readers = 64
	}
	g.Fill(t, files)
	p := s3test.StartProxy(t, g.URL)
	s := openRemote(t, "s3://"+s3test.Bucket+"/", source.Options{Remote: source.Remote{S3: source.S3{Endpoint: p.URL, Region: s3test.Region}}})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil || len(entries) != len(files) {
		t.Fatalf("%d samples, %v", len(entries), err)
	}
	p.Add(t, "latency", 0.3, map[string]any{"latency": 5, "jitter": 5})
	p.Add(t, "limit_data", 0.5, map[string]any{"bytes": 150_000}) // bytes of a connection: bodies end early
	p.Add(t, "reset_peer", 0.05, map[string]any{"timeout": 3})
	if least > 10_000 { // a stalled connection takes 10 s if there may be no second request
		p.Add(t, "timeout", 0.01, map[string]any{"timeout": 0}) // the connection stays open without another byte
		p.Add(t, "bandwidth", 0.05, map[string]any{"rate": 500})
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for {
				if n, _ := source.RequestsOf(s); n.Requests >= least || t.Failed() {
					return
				}
				n := int(next.Add(1))
				if n%200 == 0 { // otherwise connections without a toxic would soon carry everything
					p.Enable(t, false)
					p.Enable(t, true)
				}
				e := entries[n%len(entries)]
				if n%len(entries) >= small && n/len(entries)%10 != 0 {
					continue
				}
				dst := make([]byte, e.Size)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // limits a hang
				if err := s.Read(ctx, e, dst); err != nil || !bytes.Equal(dst, files[e.Name]) {
					t.Errorf("Read %s: %v, or other bytes", e.Name, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	n, _ := source.RequestsOf(s)
	if n.Retries == 0 {
		t.Errorf("%+v: nothing went wrong, so nothing was tested", n)
	}
	if n.MostBytes > 64<<20 {
		t.Errorf("%d bytes were under way at one time", n.MostBytes)
	}
	t.Logf("%d requests, %d retries, %d hedges; at most %d bytes under way", n.Requests, n.Retries, n.Hedges, n.MostBytes)
}

// TestOutage: an outage in the middle delays reads, and none fails.
func TestOutage(t *testing.T) {
	g := s3test.Start(t)
	g.Fill(t, map[string][]byte{"c/x": sourcetest.Content(1, 5000)})
	p := s3test.StartProxy(t, g.URL)
	s := openRemote(t, "s3://"+s3test.Bucket+"/", source.Options{Remote: source.Remote{S3: source.S3{Endpoint: p.URL, Region: s3test.Region}}})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Enable(t, false)
	done := make(chan error)
	const readers = 3
	for range readers {
		go func() { done <- s.Read(t.Context(), entries[0], make([]byte, 5000)) }()
	}
	for n := (source.Requests{}); n.Retries < readers; { // so that some of them have failed
		n, _ = source.RequestsOf(s)
		runtime.Gosched()
	}
	p.Enable(t, true)
	for range readers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// pythonRanges adds ranges to Python's http.server.
const pythonRanges = `
import functools, http.server, io, re, sys

class Handler(http.server.SimpleHTTPRequestHandler):
    def send_head(self):
        body = super().send_head()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return body if body is None or asked is None else io.BytesIO(body.read()[int(asked[1]) : int(asked[2]) + 1])

    def send_response(self, code, message=None):
        super().send_response(206 if code == 200 and "Range" in self.headers else code, message)

    def send_header(self, name, value):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and name == "Content-Length":
            self.send_header("Content-Range", f"bytes {asked[1]}-{asked[2]}/{value}")
            value = str(int(asked[2]) + 1 - int(asked[1]))
        super().send_header(name, value)

handler = functools.partial(Handler, directory=sys.argv[2])
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
`

// TestPythonServer: a common web server without ETags, without ranges and with them.
func TestPythonServer(t *testing.T) {
	t.Run("without ranges", func(t *testing.T) {
		readPythonServer(t, func(port, dir string) []string {
			return []string{"-m", "http.server", port, "--bind", "127.0.0.1", "--directory", dir}
		})
	})
	t.Run("with ranges", func(t *testing.T) {
		n := readPythonServer(t, func(port, dir string) []string { return []string{"-c", pythonRanges, port, dir} })
		if n.Requests-n.Retries != 1+3+2+1 { // the list, a HEAD each, two ranges, and the small objects
			t.Errorf("%d requests, %d retries", n.Requests, n.Retries)
		}
	})
}

// readPythonServer lists and reads a server's samples, and returns the number of requests.
func readPythonServer(t *testing.T, arguments func(port, dir string) []string) source.Requests {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	dir := t.TempDir()
	files := map[string][]byte{"a/1.bin": sourcetest.Content(1, 100), "b/2 x.bin": sourcetest.Content(2, 9<<20), "b/empty": nil}
	list := ""
	for _, name := range []string{"b/2 x.bin", "a/1.bin", "b/empty"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, files[name], 0o600); err != nil {
			t.Fatal(err)
		}
		list += strings.ReplaceAll(name, " ", "%20") + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "LIST"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	url := s3test.Serve(t, func(address string) *exec.Cmd {
		_, port, _ := strings.Cut(address, ":")
		return exec.Command(python, arguments(port, dir)...)
	})
	s := openRemote(t, "http://"+url+"/LIST", source.Options{})
	classes, entries, err := s.List(t.Context(), nil)
	if err != nil || fmt.Sprint(classes) != "[a b]" || len(entries) != 3 {
		t.Fatalf("%q %v, %v", classes, entries, err)
	}
	for _, e := range entries {
		dst := make([]byte, e.Size)
		if err := s.Read(t.Context(), e, dst); err != nil || !bytes.Equal(dst, files[strings.ReplaceAll(e.Name, "%20", " ")]) {
			t.Errorf("Read %s: %v, or other bytes", e.Name, err)
		}
	}
	n, _ := source.RequestsOf(s)
	if err := os.WriteFile(filepath.Join(dir, "a/1.bin"), sourcetest.Content(3, 101), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context(), entries[1], make([]byte, 100)); err == nil || !strings.Contains(err.Error(), "it has 101 bytes, had 100") {
		t.Errorf("a file that has grown: %v", err)
	}
	return n
}
