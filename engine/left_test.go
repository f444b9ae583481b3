package engine

import (
	"testing"

	"lcache/internal/store/ingest"
)

// TestEpochThatWasLeft: a job leaves an epoch and begins again with epoch 0. The epoch that it left has its own entry, before the epochs that it reads
// then. Its counts do not become part of the later epoch with the same number.
func TestEpochThatWasLeft(t *testing.T) {
	d := makeDataset(t, 240, mixedSizes)
	j := samplerJob(4, 16, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, 2)
	c := attach(t, e)
	defer c.Disconnected()
	b, err := c.Chunk(t.Context(), 2, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Release(b.Lease)
	d.readEpochs(t, e, j, 0, 3)
	want := []struct {
		epoch   int
		samples int64
	}{{0, 240}, {1, 240}, {2, 16}, {0, 240}, {1, 240}, {2, 240}}
	done := e.Status().Jobs[0].EpochsDone
	for i, line := range done {
		if i >= len(want) || line.Epoch != want[i].epoch || line.Hits+line.Misses != want[i].samples {
			t.Errorf("line %d: epoch %d of %d samples", i, line.Epoch, line.Hits+line.Misses)
		}
	}
	if len(done) != len(want) {
		t.Errorf("%d epochs, want %d: %v", len(done), len(want), want)
	}
}
