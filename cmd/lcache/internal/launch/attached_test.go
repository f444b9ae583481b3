package launch

import (
	"strings"
	"testing"

	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
)

// TestAttachedSummary: with a server that already ran, the summary covers the time since the run began.
func TestAttachedSummary(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	status := func(epochs int, samples int64) status.Document {
		j := status.Job{Name: "train", Recipe: "torch.randperm", Samples: 100, DatasetBytes: 1e6, KeptBytes: 1e6, SamplesDelivered: samples, Hits: samples - 10, Misses: 10, CorruptSamples: samples / 100,
			Divergences: 1, FirstDivergence: &status.Divergence{Batch: 7}}
		loop, decode := float64(samples), float64(samples)/2
		if j.LoopSeconds = &loop; epochs > 3 {
			j.DecodeSeconds = &decode // told later
		}
		for e := range epochs {
			j.EpochsDone = append(j.EpochsDone, status.Epoch{Epoch: e, Seconds: 10, Hits: 100, OrderDigest: &digest})
		}
		return status.Document{Schema: 1, Jobs: []status.Job{j}}
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

// TestAttachedAmongOthers: while a run used a server that another process started, jobs began, continued, slept and ended there. The summary has the jobs that did something,
// each from the beginning of the run. It has the figures of the log once, whichever job owned it.
func TestAttachedAmongOthers(t *testing.T) {
	job := func(id string, owner, ended bool, chunks int64, epochs ...int) status.Job {
		j := status.Job{ID: id, Owner: owner, Ended: ended, ChunksDelivered: chunks, SamplesDelivered: 10 * chunks, Hits: 10 * chunks, SourceBytes: 100 * chunks, KeptBytes: 1, DatasetBytes: 1}
		for _, e := range epochs {
			j.EpochsDone = append(j.EpochsDone, status.Epoch{Epoch: e, Seconds: 1, Hits: 100})
		}
		return j
	}
	began := status.Document{Jobs: []status.Job{job("notebook", true, false, 50, 0), job("sleeper", false, false, 7), job("again", false, false, 9), job("long ago", false, true, 3)}}
	began.Jobs[0].LogReadBytes, began.Jobs[0].CorruptSamples = 1000, 2
	last := status.Document{Jobs: []status.Job{job("train", true, false, 30, 0, 1), job("notebook", false, false, 60, 0, 1), job("sleeper", false, false, 7), job("again", false, false, 12),
		job("long ago", false, true, 3), job("again", false, true, 10)}}
	last.Jobs[0].LogReadBytes, last.Jobs[0].CorruptSamples = 4000, 5
	s := &serving{other: &attached{pid: 4711, began: began}, last: last, ready: map[string]*mean{"train": {sum: 24, n: 1}}}
	r := s.result(0)
	want := map[string]int64{"train": 300, "notebook": 100, "again": 120, "again ended": 10}
	for k, j := range r.Part.Jobs {
		name := j.ID
		if j.Ended {
			name += " ended"
		}
		if j.SamplesDelivered != want[name] || j.SourceBytes != 10*want[name] {
			t.Errorf("%s has %d samples and %d bytes of the source, want %d samples", name, j.SamplesDelivered, j.SourceBytes, want[name])
		}
		delete(want, name)
		if first := k == 0; first != (name == "train") || (j.LogReadBytes == 3000) != first || (j.CorruptSamples == 3) != first {
			t.Errorf("entry %d: got %s with %d bytes read and %d corrupt; want the log's figures since the run began in the first entry alone, which owns the log", k, name, j.LogReadBytes, j.CorruptSamples)
		}
		if wantDone := map[string]int{"train": 2, "notebook": 1}[name]; len(j.EpochsDone) != wantDone {
			t.Errorf("%s has %d epochs, want %d", name, len(j.EpochsDone), wantDone)
		}
	}
	if len(want) > 0 || len(r.Verdicts) != len(r.Part.Jobs) || r.Verdict != r.Verdicts[0] {
		t.Errorf("missing: %v; %d verdicts", want, len(r.Verdicts))
	}
	if len(r.Status.Jobs) != 6 {
		t.Errorf("the server's own document was changed: %d jobs", len(r.Status.Jobs))
	}
}

// TestOwnUnused: of the run's own server only the jobs that somebody used are shown.
func TestOwnUnused(t *testing.T) {
	s := &serving{last: status.Document{Jobs: []status.Job{{Owner: true, LogReadBytes: 70}, {ID: "train", Ended: true, SamplesDelivered: 5}}}}
	if r := s.result(0); len(r.Part.Jobs) != 1 || r.Part.Jobs[0].ID != "train" || r.Part.Jobs[0].LogReadBytes != 70 {
		t.Errorf("got %+v, want the used job with the bytes read from the log", r.Part.Jobs)
	}
}

// TestReadyOfJobs: ready batches are counted for each job separately.
func TestReadyOfJobs(t *testing.T) {
	f := func(ready int) status.Document {
		return status.Document{Jobs: []status.Job{{ID: "a", SamplesDelivered: 1, ReadyBatches: ready}, {ID: "b", SamplesDelivered: 1, ReadyBatches: 2}, {ID: "c"}, {ID: "a", Ended: true, SamplesDelivered: 9}}}
	}
	s := &serving{}
	s.count(f(10))
	s.count(f(20))
	if a, b, c := s.ready["a"].value(), s.ready["b"].value(), s.ready["c"].value(); a != 15 || b != 2 || c != 0 {
		t.Errorf("ready: %v, %v and %v batches, want 15, 2 and none", a, b, c)
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
