package ingest_test

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// TestGatewayKilledInAnIngest: a gateway that is killed during an ingest and then restarted only delays the ingest.
// The cache has the bucket's bytes, and only failed requests are repeated.
func TestGatewayKilledInAnIngest(t *testing.T) {
	for name, kind := range map[string]struct {
		src     string
		files   func(t *testing.T) map[string][]byte
		samples int
		at      int64 // number of samples read when the gateway is killed
	}{
		"objects": {"s3://" + s3test.Bucket + "/set/", func(*testing.T) map[string][]byte {
			files := map[string][]byte{}
			for i := range 200 {
				files[fmt.Sprintf("set/c%d/%03d", i%4, i)] = sourcetest.Content(byte(i), 20_000+i)
			}
			return files
		}, 200, 80},
		"shards": {"tar:s3://" + s3test.Bucket + "/t-{0..5}.tar", func(t *testing.T) map[string][]byte {
			files := map[string][]byte{}
			for i := range 6 {
				files[fmt.Sprintf("t-%d.tar", i)] = tarOf(t, byte(40*i), 40, 120_000) // two pieces each
			}
			return files
		}, 240, 30},
	} {
		t.Run(name, func(t *testing.T) {
			g := s3test.Start(t)
			g.Fill(t, kind.files(t))
			dir := filepath.Join(t.TempDir(), "cache")
			var cost ingest.Cost
			var once sync.Once
			var back sync.WaitGroup
			o := ingest.Options{Source: kind.src, Dirs: []string{dir}, Jobs: 4, Cost: func(c ingest.Cost) { cost = c },
				Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}, NoHedge: true}}
			o.Progress = func(p cache.Progress) {
				if p.Samples < kind.at {
					return
				}
				once.Do(func() { // other readers wait here too, or are at requests
					g.Kill()
					dead, err := net.Listen("tcp", strings.TrimPrefix(g.URL, "http://")) // notices the first request that finds no gateway
					if err != nil {
						t.Error(err)
						return
					}
					back.Go(func() {
						dead.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
						c, err := dead.Accept()
						if err == nil {
							c.Close()
						}
						if err := errors.Join(err, dead.Close(), g.Restart()); err != nil {
							t.Error(err)
						}
					})
				})
			}
			r, err := ingest.Run(t.Context(), o)
			if back.Wait(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v of a cost of %+v", r.Remote, cost)
			if r.Remote.Retries == 0 || r.StoredSamples != kind.samples || r.Already != 0 {
				t.Errorf("got requests %+v, stored %d of %d: want retries", r.Remote, r.StoredSamples, kind.samples)
			}
			if name == "objects" && r.Remote.Requests-r.Remote.Retries != cost.Listed+cost.Gets {
				t.Errorf("got requests %+v, want %d in addition to the retries", r.Remote, cost.Listed+cost.Gets)
			}
			verified(t, dir, kind.src, kind.samples)
		})
	}
}
