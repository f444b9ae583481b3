package overview

import (
	"testing"

	"lcache/internal/serve/status"
)

// TestHeadline: one sentence for each bottleneck, and for a server where nothing is read.
func TestHeadline(t *testing.T) {
	some := func(n float64) *float64 { return &n }
	reads := status.Job{ID: "a", Epochs: 8, Epoch: 3, SamplesDelivered: 100, HitsEpoch: 90, MissesEpoch: 10, KeptBytes: 100, DatasetBytes: 100, ReadyBatches: 24, Ranks: []status.Rank{{Pid: 1}},
		EpochsDone: []status.Epoch{{}}, LoopWaitSeconds: some(3), LoopSeconds: some(10), BoundBy: "unknown"}
	was := reads
	was.SamplesDelivered, was.LoopWaitSeconds, was.LoopSeconds = 50, some(2), some(6)
	with := func(change func(*status.Job)) status.Job {
		j := reads
		change(&j)
		return j
	}
	for _, c := range []struct {
		name string
		now  []status.Job
		want Headline
	}{
		{"no job", nil, Headline{Idle, "No sample was requested yet"}},
		{"only the recipe", []status.Job{{}}, Headline{Idle, "No sample was requested yet"}},
		{"ended", []status.Job{{}, with(func(j *status.Job) { j.Ended = true })}, Headline{Idle, "No job is connected: 1 job has ended"}},
		{"loop", []status.Job{with(func(j *status.Job) { j.BoundBy = "consumer" })}, Headline{Good, "The training loop is the limit: 24 batches were ready"}},
		{"loop without reports", []status.Job{with(func(j *status.Job) { j.BoundBy, j.LoopSeconds, j.StallSeconds = "consumer", nil, 0.5 })}, Headline{Idle, "The training loop reports no waits: requests waited 10 %, and 24 batches were ready"}},
		{"decoding", []status.Job{with(func(j *status.Job) { j.BoundBy, j.ReadyBatches = "decode", 1 })}, Headline{Limit, "Decoding is the limit: the loop waited 25 %, and 1 batch was ready"}},
		{"budget", []status.Job{with(func(j *status.Job) { j.BoundBy, j.KeptBytes = "source", 60 })}, Headline{Limit, "The source is the limit: the budget keeps 60 % of the dataset"}},
		{"first epoch", []status.Job{with(func(j *status.Job) { j.BoundBy, j.HitsEpoch, j.EpochsDone = "source", 0, nil })}, Headline{Limit, "The source is the limit: this epoch reads it once, and fills the cache"}},
		{"source", []status.Job{with(func(j *status.Job) { j.BoundBy = "source" })}, Headline{Limit, "The source is the limit: 10 % of this epoch came from there"}},
		{"disk", []status.Job{with(func(j *status.Job) { j.BoundBy = "disk" })}, Headline{Limit, "The disk is the limit: the loop waited 25 %"}},
		{"unknown", []status.Job{reads}, Headline{Idle, "The limit is not known: the loop waited 25 %"}},
		{"evaluates", []status.Job{with(func(j *status.Job) { j.BoundBy, j.SamplesDelivered = "consumer", 50 })}, Headline{Idle, "No batch was requested for 5.0 s: 24 batches are ready"}},
		{"waits for the disk", []status.Job{with(func(j *status.Job) { j.BoundBy, j.SamplesDelivered, j.StallSeconds = "disk", 50, 5 })}, Headline{Limit, "The disk is the limit: the loop waited 25 %"}},
		{"epoch done", []status.Job{with(func(j *status.Job) {
			j.SamplesDelivered, j.Ranks = 50, []status.Rank{{Pid: 1, Epoch: 3, Finished: true}}
		})}, Headline{Idle, "Epoch 3 is done, and the next one has not begun"}},
		{"all done", []status.Job{with(func(j *status.Job) {
			j.SamplesDelivered, j.Ranks = 50, []status.Rank{{Pid: 1, Epoch: 7, Finished: true}}
		})}, Headline{Idle, "Training is done: 8 epochs"}},
	} {
		v := View{Before: status.Document{Jobs: []status.Job{was}}, Now: status.Document{Jobs: c.now}, Seconds: 5}
		if got := v.Headline(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
