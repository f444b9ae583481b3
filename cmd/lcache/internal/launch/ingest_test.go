package launch

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"lcache/internal/cluster"
	"lcache/internal/store/cache"
)

// TestIngestOfACluster: three machines list the source once, and each reads its own part. A second time nothing is left to read.
func TestIngestOfACluster(t *testing.T) {
	o, _ := options(t, "true")
	o.Ingest.Source, o.Ingest.NoPrefill = o.Sources[0].Path, false
	roots := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for round := range 2 {
		seed, where := freePort(t), cluster.Where{}
		reports := make([]IngestReport, 3)
		var running sync.WaitGroup
		for i := range reports {
			listen := fmt.Sprintf("127.0.0.1:%d", seed)
			if i > 0 {
				listen = "127.0.0.1:0"
				where.Seeds = []cluster.Seed{{Host: "127.0.0.1", Port: seed}}
			}
			in := o.Ingest
			in.Dirs, in.Logger = []string{filepath.Join(roots[i], "cache")}, discard
			in.Progress = func(cache.Progress) {}
			c := &ClusterOptions{Options: cluster.Options{Where: cluster.Where{Seeds: slices.Clone(where.Seeds)}, Listen: listen, Expect: 3, Host: fmt.Sprint("gpu-", i), Logger: discard}}
			running.Go(func() {
				var err error
				if reports[i], err = Ingest(t.Context(), IngestOptions{Ingest: in, Cluster: c, Version: "test", Logger: discard}); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		if t.Failed() {
			return
		}
		var samples, bytes, already int64
		for _, r := range reports {
			samples, bytes, already = samples+r.Filled.Samples, bytes+r.Filled.Bytes, already+r.Filled.Already
			if r.Machines != 3 || r.Filled.Failed != 0 {
				t.Errorf("report %+v of %d machines", r.Filled, r.Machines)
			}
		}
		// The first of the ten files is empty.
		if round == 0 && (samples != 9 || bytes != 4500 || already != 0) || round == 1 && (samples != 0 || already != 9) {
			t.Errorf("round %d: %d samples with %d bytes were read, and %d were there", round, samples, bytes, already)
		}
	}
}

// freePort returns a port that is free together with the next one.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		a.Close()
		if err == nil {
			b.Close()
			return port
		}
	}
	t.Fatal("no two free ports")
	return 0
}
