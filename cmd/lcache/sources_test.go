package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/internal/store/cachedir"
	"lcache/internal/testenv"
	"lcache/source/s3test"
)

// TestSourcesPage runs the commands of docs/sources.md, with a local gateway and web server in place of the named ones.
func TestSourcesPage(t *testing.T) {
	testenv.AnyIO(t)
	g := s3test.Start(t)
	files, list := map[string][]byte{}, ""
	for i := range 40 {
		name := fmt.Sprintf("c%d/%d", i%2, i)
		files["photos/"+name] = bytes.Repeat([]byte(name), 20) // as train.py wants it
		list += name + "\n"
	}
	shards := t.TempDir()
	makeShards(t, shards+"/val-{0..1}.tar")
	for _, name := range []string{"val-0.tar", "val-1.tar"} {
		b, err := os.ReadFile(filepath.Join(shards, name))
		if err != nil {
			t.Fatal(err)
		}
		files["shards/"+name] = b
	}
	g.Fill(t, files)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data := files[strings.TrimPrefix(r.URL.Path, "/")]
		if r.URL.Path == "/photos/LIST" {
			data = []byte(list)
		}
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(data))
	}))
	defer srv.Close()
	t.Setenv("AWS_ENDPOINT_URL_S3", g.URL)
	names := strings.NewReplacer("eu-west-1", s3test.Region, "https://data.example.org", srv.URL)
	blocks, _ := blocksOf(t, "docs/sources.md")
	s, ran := newStage(t), 0
	for _, b := range blocks {
		if _, marked := b.notRun(); marked {
			continue
		}
		switch b.language() {
		case "sh":
			for _, line := range commandLines(b.text) {
				s.run(names.Replace(line))
				ran++
			}
		case "python":
			writeFile(t, filepath.Join(filepath.Dir(s.root), "work", "block.py"), "import os\nos.environ['LCACHE_LINGER'] = '0'\n"+names.Replace(b.text))
			s.run("lcache run --quiet --source /data/train -- python block.py")
			ran++
		}
	}
	if ran < 5 {
		t.Errorf("%d commands ran", ran)
	}
	// The server that lcache.open started ends on its own, and writes into its cache until then.
	root := filepath.Join(filepath.Dir(s.root), "home/.cache/lcache")
	until(t, "the server of lcache.open has ended", func() bool {
		caches, err := cachedir.List(root)
		if err != nil || len(caches) == 0 {
			t.Fatalf("no cache of lcache.open in %s: %v", root, err)
		}
		return !slices.ContainsFunc(caches, func(c cachedir.Cache) bool { return c.Pid != 0 })
	})
}
