package launch

import (
	"path/filepath"
	"strings"
	"testing"

	"lcache/internal/cluster"
	"lcache/internal/errcode"
	"lcache/internal/store/cache"
)

// TestIngestCountsPeerMemory: what travels between machines is part of --memory during an ingest, too.
func TestIngestCountsPeerMemory(t *testing.T) {
	o, _ := options(t, "true")
	for _, c := range []struct {
		peerMemory int64
		fits       bool
	}{{8 << 20, true}, {60 << 20, false}} {
		in := o.Ingest
		in.Source, in.NoPrefill, in.Memory, in.Logger = o.Sources[0].Path, false, 64<<20, discard
		in.Dirs, in.Progress = []string{filepath.Join(t.TempDir(), "cache")}, func(cache.Progress) {}
		_, err := Ingest(t.Context(), IngestOptions{Ingest: in, Version: "test", Logger: discard,
			Cluster: &ClusterOptions{Memory: c.peerMemory, Options: cluster.Options{Listen: "127.0.0.1:0", Expect: 1, Logger: discard}}})
		if code, _ := errcode.Of(err); (err == nil) != c.fits || err != nil && (code != errcode.Memory || !strings.Contains(err.Error(), "--peer-memory")) {
			t.Errorf("with --peer-memory of %d: %v", c.peerMemory, err)
		}
	}
}
