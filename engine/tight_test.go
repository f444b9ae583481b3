package engine

import "testing"

func TestTight(t *testing.T) {
	d := makeDataset(t, 1500, mixedSizes)
	j := samplerJob(4, 7, 2, true)
	o, rep := ingested(t, d, IngestOptions{Job: j, Block: 128 << 10, Memory: 24 << 20})
	t.Logf("%+v", rep)
	e := open(t, o)
	t.Logf("%+v", e.sizing)
	d.readEpochs(t, e, j, 0, 4)
	s := e.Status().Jobs[0]
	closeEngine(t, e)
	if s.Misses != 0 || s.SourceReads != 0 {
		t.Errorf("misses %d, source reads %d, want none: %+v", s.Misses, s.SourceReads, s)
	}
	t.Logf("%+v", s)
}
