package engine

import (
	"strings"
	"testing"

	"lcache/internal/store/cache"
)

// TestClusterGuards: what does not work on several machines yet is refused with --cluster, in one sentence each.
func TestClusterGuards(t *testing.T) {
	d := makeDataset(t, 60, fileSizes)
	f := newFleet(t, d, samplerJob(9, 4, 3, true), 1, 0)
	m := f.machines[0]
	for text, want := range map[string]string{
		`{"method":"shade","batch_size":4,"world_size":3,"local_world_size":1}`:                       "needs all ranks on one machine: 3 in all, 1 here",
		`{"method":"spider","substitute":"class","batch_size":4,"world_size":3,"local_world_size":3}`: "substitute does not work with --cluster yet",
	} {
		if _, err := m.Importance(t.Context(), 0, 0, "run", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	f.close(t)
	o := m.o
	o.Layout = cache.LayoutLog
	if e, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--layout log does not work with --cluster") {
		t.Errorf("the log layout: %v", err)
		if err == nil {
			closeEngine(t, e)
		}
	}
}
