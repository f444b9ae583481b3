package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"lcache/cmd/lcache/internal/launch"
	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
	"lcache/internal/verdict"
)

func digest(s string) *string { return &s }

func TestWriteRun(t *testing.T) {
	job := status.Job{Recipe: "torch.distributed_sampler", Samples: 1281167, DatasetBytes: 138e9, KeptBytes: 138e9, SamplesDelivered: 2*1281167 + 500,
		Hits: 1281167 + 400, Misses: 1281167 + 100, SourceBytes: 138e9 + 10e6, LogReadBytes: 139e9, LogWriteBytes: 276e9,
		EpochsDone: []status.Epoch{
			{Epoch: 0, Seconds: 552, Misses: 1281167, SourceBytes: 138e9, LogWriteBytes: 138e9, StallSeconds: 171, LoopWaitSeconds: seconds(171.2), OrderDigest: digest("9f3a77aa")},
			{Epoch: 1, Seconds: 277, Hits: 1281167, LogReadBytes: 138e9, LogWriteBytes: 138e9, LoopWaitSeconds: seconds(1.1), OrderDigest: digest("51c0ffee")},
		}}
	doc := status.Document{Jobs: []status.Job{job}}
	loop := verdict.Judge(verdict.Facts{Delivered: 1, Since: 1, Seconds: 277, LoopSeconds: 277, LoopWait: 1.1, Ready: 24})
	train := launch.SourceResult{Source: launch.Source{Name: "train", Path: "/data/train"}, Verdict: loop, Part: doc}
	val := launch.SourceResult{Source: launch.Source{Name: "val", Path: "/data/val"}, Verdict: verdict.Judge(verdict.Facts{})}
	const ended = "train.py ended (0) after 46 min 12 s\n"
	const first = `epoch     time  MB/s   hits  source    read  written  loop waited  order
0         9:12   250    0 %  138 GB       0   138 GB         31 %  9f3a…
1         4:37   498  100 %       0  138 GB   138 GB        0.4 %  51c0…
by index     –     –   80 %   10 MB    1 GB        0            –      –
exact       order as torch's, 2 of 2 epochs · every byte verified · 0 corrupt
bottleneck  the training loop since epoch 1: lcache had 24 batches ready; lcache cannot make this faster
change      nothing
`
	const second = `exact       no sample was read from this server
bottleneck  nothing: no sample was read through lcache
change      read samples through lcache: lcache.connect() in Python, or lcache.torch with this source
`
	lossy := launch.SourceResult{Verdict: verdict.Judge(verdict.Facts{}), Part: status.Document{Jobs: []status.Job{{SkippedSamples: 1204}}}}
	check := status.Job{ID: "check", Samples: 1281167, DatasetBytes: 138e9, SamplesDelivered: 100, Hits: 100, EpochsDone: []status.Epoch{{Epoch: 0, Seconds: 2, Hits: 100, StallSeconds: 1}}}
	job.ID, job.CorruptSamples = "run-7", 0
	two := launch.SourceResult{Verdict: loop, Verdicts: []verdict.Verdict{loop, verdict.Judge(verdict.Facts{Delivered: 100, Seconds: 2, LoopSeconds: 2})}, Part: status.Document{Jobs: []status.Job{job, check}}}
	const both = `
job run-7
epoch     time  MB/s   hits  source  loop waited  order
0         9:12   250    0 %  138 GB         31 %  9f3a…
1         4:37   498  100 %       0        0.4 %  51c0…
by index     –     –   80 %   10 MB            –      –
exact       order as torch's, 2 of 2 epochs · every byte verified · 0 corrupt
bottleneck  the training loop since epoch 1: lcache had 24 batches ready; lcache cannot make this faster
change      nothing

job check
epoch   time  MB/s   hits  source  requests waited  order
0      2.0 s   5.4  100 %       0             50 %      –
exact       order as the loader's own, 0 of 1 epoch · every byte verified · 0 corrupt
bottleneck  BOUND
change      CHANGE

disk        139 GB read and 276 GB written, for all jobs together
`
	known := train
	known.Part.Cache.Wear = status.Wear{DriveBytes: 3.84e12, EndurancePerDay: 3.84e12}
	ofCheck := two.Verdicts[1]
	for _, c := range []struct {
		sources []launch.SourceResult
		want    string
	}{
		{[]launch.SourceResult{two}, ended + strings.NewReplacer("BOUND", strings.TrimPrefix(ofCheck.Bound, "by "), "CHANGE", ofCheck.Change).Replace(both)},
		{[]launch.SourceResult{train}, ended + first},
		{[]launch.SourceResult{known}, ended + strings.Replace(first, "exact ", "wear        8.6 TB written per day · 2.2 drive writes · rated for 3.8 TB\nexact ", 1)},
		{[]launch.SourceResult{lossy}, ended + second + "skipped     1,204 samples were left out of batches, because the source could not supply them; the log above names each\n"},
		{[]launch.SourceResult{train, val}, ended + "\ntrain · /data/train\n" + first + "\nval · /data/val\n" + second},
	} {
		var out bytes.Buffer
		writeRun(&out, &launch.Result{Command: "train.py", Seconds: 46*60 + 12, Sources: c.sources})
		if out.String() != c.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
		}
	}
}

// TestWriteRunImportance: how many samples an epoch had is shown where importance decides it.
func TestWriteRunImportance(t *testing.T) {
	job := status.Job{Recipe: "torch.distributed_sampler", Samples: 4000, DatasetBytes: 4e6, SamplesDelivered: 6020, Hits: 2020, Misses: 4000, SourceBytes: 4e6,
		Importance: &status.Importance{Method: "impact"}, HitsEpoch: 10, // of an epoch that was begun
		EpochsDone: []status.Epoch{
			{Epoch: 0, Seconds: 4, Misses: 4000, SourceBytes: 4e6, LoopWaitSeconds: seconds(1), OrderDigest: digest("9f3a77aa")},
			{Epoch: 1, Seconds: 2, Hits: 2010, LoopWaitSeconds: seconds(0), OrderDigest: digest("51c0ffee")},
		}}
	const want = `epoch        time  MB/s   hits  source  read  written  loop waited  order  samples
0           4.0 s   1.0    0 %    4 MB     0        0         25 %  9f3a…    4,000
1           2.0 s   1.0  100 %       0     0        0          0 %  51c0…    2,010
unfinished      –     –  100 %       0     0        0            –      –       10
exact       order as drawn by impact, 2 of 2 epochs · every byte verified · 0 corrupt
`
	var out bytes.Buffer
	writeRun(&out, &launch.Result{Command: "train.py", Seconds: 6, Sources: []launch.SourceResult{{Part: status.Document{Jobs: []status.Job{job}}}}})
	_, table, _ := strings.Cut(out.String(), "\n")
	if table, _, _ = strings.Cut(table, "bottleneck "); table != want {
		t.Errorf("got\n%s\nwant\n%s", table, want)
	}
}

func TestEndedText(t *testing.T) {
	for _, c := range []struct {
		done launch.Result
		want string
	}{
		{launch.Result{Command: "a", ExitCode: 7, Seconds: 0.5}, "a ended (7) after 0.5 s"},
		{launch.Result{Command: "a", ExitCode: 137, Signal: syscall.SIGKILL, Seconds: 61}, "a was killed by SIGKILL after 1 min 1 s"},
		{launch.Result{Command: "a\nb", ExitCode: 128 + 40, Signal: syscall.Signal(40), Seconds: 1}, `a\nb was killed by signal 40 after 1.0 s`},
	} {
		if got := endedText(&c.done); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestExactText(t *testing.T) {
	one, known := status.Epoch{}, status.Epoch{OrderDigest: digest("ab")}
	for _, c := range []struct {
		job  status.Job
		want string
	}{
		{status.Job{}, "no sample was read from this server"},
		{status.Job{SamplesDelivered: 1}, "no epoch came to its end · every byte verified · 0 corrupt"},
		{status.Job{SamplesDelivered: 1, Recipe: "numpy.default_rng", EpochsDone: []status.Epoch{known}}, "order as numpy's, 1 of 1 epoch · every byte verified · 0 corrupt"},
		{status.Job{SamplesDelivered: 1, Recipe: "torch.randperm", CorruptSamples: 2, EpochsDone: []status.Epoch{known, known}},
			"order as torch's, 2 of 2 epochs · every byte verified · 2 samples were corrupt on disk, and read from the source instead"},
		{status.Job{SamplesDelivered: 1, EpochsDone: []status.Epoch{known, one}}, "order as the loader's own, 1 of 2 epochs · every byte verified · 0 corrupt"},
		{status.Job{SamplesDelivered: 1, Recipe: "torch.randperm", Divergences: 4, CorruptSamples: 1, EpochsDone: []status.Epoch{known, one, one}},
			"order as planned in 1 of 3 epochs · every byte verified · 1 sample was corrupt on disk, and read from the source instead"},
	} {
		if got := exactText(status.Document{Jobs: []status.Job{c.job}}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestClock(t *testing.T) {
	for s, want := range map[float64]string{0.05: "50 ms", 9.96: "10.0 s", 59: "59 s", 59.7: "60 s", 60: "1:00", 552.4: "9:12", 3599.6: "1:00:00", 3800: "1:03:20"} {
		if got := overview.Clock(s); got != want {
			t.Errorf("%v s: got %q, want %q", s, got, want)
		}
	}
}
