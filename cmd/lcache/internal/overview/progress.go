package overview

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

// Progress says where a job is: its epoch, the batch of its ranks in the mean, the share of the epoch, and the time that is left. What is not known is empty.
func Progress(v View, was, job status.Job) (epoch, batch, done, left string) {
	if at, over := finished(job); over {
		return fmt.Sprint(at), "", "done", ""
	}
	position, remaining, ranks := positions(job)
	epoch = fmt.Sprint(job.Epoch)
	switch reads := v.Seconds > 0 && job.SamplesDelivered > was.SamplesDelivered; {
	case ranks == 0 && reads: // by index, as a job that is served on demand
		return epoch, "", "–", ""
	case ranks == 0:
		return epoch, "", "idle", ""
	}
	batch = units.Count(int64(position / ranks))
	if job.Batches == 0 {
		return epoch, batch, "–", ""
	}
	if chunks := job.ChunksDelivered - was.ChunksDelivered; chunks > 0 && v.Seconds > 0 && remaining > 0 {
		left = units.Duration(remaining / (float64(chunks) / v.Seconds))
	}
	return epoch, batch + " / " + units.Count(int64(job.Batches)), units.Percent(position/ranks, float64(job.Batches)), left
}

// positions returns the sums over a job's ranks of their positions and of their remaining batches, and the number of ranks. A rank that never asked for
// anything does not count.
func positions(job status.Job) (position, remaining, ranks float64) {
	for _, r := range job.Ranks {
		if r.Pid == 0 {
			continue
		}
		position += float64(r.Position)
		remaining += math.Max(float64(job.Batches)-float64(r.Position), 0)
		ranks++
	}
	return position, remaining, ranks
}

// Position returns the mean position of a job's ranks in the epoch, and the epoch's batches; 0: not known.
func Position(job status.Job) (position, of float64) {
	position, _, ranks := positions(job)
	if _, over := finished(job); over || ranks == 0 {
		return 0, 0
	}
	return position / ranks, float64(job.Batches)
}

// ProgressFacts says the same in words.
func ProgressFacts(v View, was, job status.Job) []string {
	epoch, batch, done, left := Progress(v, was, job)
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

// LoopWait says whose time counts, and which share of it was waiting since the document before: the training loop's, as it reports; without a report the
// server's, which was short of a batch.
func LoopWait(v View, was, job status.Job) (who, share string) {
	who, wait, of := v.Waited(was, job)
	return who, units.Percent(wait, of)
}

// Waited is LoopWait in seconds: the wait, and the time that it is a part of.
func (v View) Waited(was, job status.Job) (who string, wait, of float64) {
	if !Reports(job) {
		return "requests waited", math.Min(job.StallSeconds-was.StallSeconds, v.Seconds), v.Seconds
	}
	wait, of = *job.LoopWaitSeconds, *job.LoopSeconds
	if was.LoopWaitSeconds != nil && was.LoopSeconds != nil && of > *was.LoopSeconds {
		wait, of = wait-*was.LoopWaitSeconds, of-*was.LoopSeconds
	}
	return "loop waited", wait, of
}
