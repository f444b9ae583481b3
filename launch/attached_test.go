package launch

import (
	"strings"
	"testing"

	"lcache/engine"
	"lcache/schedule"
)

// TestAttachedSummary: with a server that was there before, the summary is about what was done since.
func TestAttachedSummary(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	status := func(epochs int, samples int64) engine.Status {
		j := engine.JobStatus{Name: "train", Recipe: "torch.randperm", Samples: 100, DatasetBytes: 1e6, KeptBytes: 1e6, SamplesDelivered: samples, Hits: samples - 10, Misses: 10, CorruptSamples: samples / 100,
			Divergences: 1, FirstDivergence: &engine.Divergence{Batch: 7}}
		loop, decode := float64(samples), float64(samples)/2
		if j.LoopSeconds = &loop; epochs > 3 {
			j.DecodeSeconds = &decode // told later
		}
		for e := range epochs {
			j.EpochsDone = append(j.EpochsDone, engine.EpochDone{Epoch: e, Seconds: 10, Hits: 100, OrderDigest: &digest})
		}
		return engine.Status{Schema: 1, Jobs: []engine.JobStatus{j}}
	}
	s := &serving{other: &attached{pid: 4711, began: status(3, 300)}, last: status(5, 500)}
	of := s.result(0).Part.Jobs[0]
	if of.SamplesDelivered != 200 || of.Hits != 200 || of.Misses != 0 || of.CorruptSamples != 2 || of.Divergences != 0 || of.FirstDivergence != nil {
		t.Errorf("counters %+v", of)
	}
	if *of.LoopSeconds != 200 || *of.DecodeSeconds != 250 || of.LoopWaitSeconds != nil {
		t.Errorf("the loop's seconds: %v, %v, %v", *of.LoopSeconds, *of.DecodeSeconds, of.LoopWaitSeconds)
	}
	if len(of.EpochsDone) != 2 || of.EpochsDone[0].Epoch != 3 {
		t.Errorf("epochs %+v", of.EpochsDone)
	}
	if s.last.Jobs[0].SamplesDelivered != 500 || *s.last.Jobs[0].LoopSeconds != 500 {
		t.Error("the server's own document was changed")
	}
	if r := s.result(0); r.AttachedTo != 4711 || r.Status.Jobs[0].SamplesDelivered != 500 {
		t.Errorf("attached to %d, %d samples", r.AttachedTo, r.Status.Jobs[0].SamplesDelivered)
	}
	own := &serving{last: status(5, 500)}
	if got := own.result(0).Part.Jobs[0].SamplesDelivered; got != 500 {
		t.Errorf("of a server of the run's own: %d samples", got)
	}
}

func TestSameJob(t *testing.T) {
	job := schedule.Job{Recipe: "torch.randperm", Seed: "5", BatchSize: 2, Params: map[string]string{"a": "1"}}
	for name, change := range map[string]func(*schedule.Job){
		"recipe": func(j *schedule.Job) { j.Recipe = "" }, "seed": func(j *schedule.Job) { j.Seed = "6" }, "epochs": func(j *schedule.Job) { j.Epochs = 3 },
		"world": func(j *schedule.Job) { j.World = 2 }, "ranks": func(j *schedule.Job) { j.Ranks = []int{0} }, "drop_last": func(j *schedule.Job) { j.DropLast = true },
		"params": func(j *schedule.Job) { j.Params = map[string]string{"a": "2"} },
	} {
		other := job
		if change(&other); sameJob(job, other) {
			t.Errorf("another %s is not seen", name)
		}
	}
	same := job
	same.World, same.Ranks, same.Params = 1, []int{}, map[string]string{"a": "1"}
	if !sameJob(job, same) || !sameJob(schedule.Job{}, schedule.Job{Params: map[string]string{}}) {
		t.Error("the same is taken for another")
	}
}
