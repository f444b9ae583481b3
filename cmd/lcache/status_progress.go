package main

import (
	"fmt"
	"math"

	"lcache/internal/serve/status"
	"lcache/internal/units"
)

// finished is the epoch that all ranks which ever asked for something have behind them; ok is false while one of them has not.
func finished(job status.Job) (epoch int, ok bool) {
	for _, r := range job.Ranks {
		if r.Pid == 0 {
			continue
		}
		if !r.Finished {
			return 0, false
		}
		epoch, ok = max(epoch, r.Epoch), true
	}
	return epoch, ok
}

// progressOf says where a job is: its epoch, the batch of its ranks in the mean, the share of the epoch, and the time that is left. What is not known is empty.
func progressOf(v view, was, job status.Job) (epoch, batch, done, left string) {
	if at, over := finished(job); over {
		return fmt.Sprint(at), "", "done", ""
	}
	var position, remaining, ranks float64
	for _, r := range job.Ranks {
		if r.Pid == 0 {
			continue // never asked for anything
		}
		position += float64(r.Position)
		remaining += math.Max(float64(job.Batches)-float64(r.Position), 0)
		ranks++
	}
	epoch = fmt.Sprint(job.Epoch)
	switch reads := v.seconds > 0 && job.SamplesDelivered > was.SamplesDelivered; {
	case ranks == 0 && reads: // by index, as a job that is served on demand
		return epoch, "", "–", ""
	case ranks == 0:
		return epoch, "", "idle", ""
	}
	batch = units.Count(int64(position / ranks))
	if job.Batches == 0 {
		return epoch, batch, "–", ""
	}
	if chunks := job.ChunksDelivered - was.ChunksDelivered; chunks > 0 && v.seconds > 0 && remaining > 0 {
		left = units.Duration(remaining / (float64(chunks) / v.seconds))
	}
	return epoch, batch + " / " + units.Count(int64(job.Batches)), units.Percent(position/ranks, float64(job.Batches)), left
}

// progressFacts says the same in words.
func progressFacts(v view, was, job status.Job) []string {
	epoch, batch, done, left := progressOf(v, was, job)
	switch {
	case done == "done" && job.Epochs > 0 && epoch == fmt.Sprint(job.Epochs-1):
		return []string{"done", units.Plural(int64(job.Epochs), "epoch", "epochs")}
	case done == "done":
		return []string{"epoch " + epoch + " done"}
	case done == "idle":
		return []string{"epoch " + epoch, "no rank reads"}
	case done == "–" && batch == "":
		return []string{"epoch " + epoch, "samples by index"}
	case done == "–":
		return []string{"epoch " + epoch, "batch " + batch}
	case left != "":
		left += " left"
	}
	return []string{"epoch " + epoch, "batch " + batch, done, left}
}

// loopWait says whose time counts, and which share of it was waiting since the document before: the training loop's, as it reports; without a report the
// server's, which was short of a batch.
func loopWait(v view, was, job status.Job) (who, share string) {
	if !reports(job) {
		return "requests waited", units.Percent(math.Min(job.StallSeconds-was.StallSeconds, v.seconds), v.seconds)
	}
	wait, loop := *job.LoopWaitSeconds, *job.LoopSeconds
	if was.LoopWaitSeconds != nil && was.LoopSeconds != nil && loop > *was.LoopSeconds {
		wait, loop = wait-*was.LoopWaitSeconds, loop-*was.LoopSeconds
	}
	return "loop waited", units.Percent(wait, loop)
}
