package overview

import (
	"fmt"

	"lcache/internal/serve/status"
	"lcache/internal/units"
)

// Kinds of a Headline.
const (
	Good  = "good"  // the training loop does not wait for lcache
	Limit = "limit" // something else is the bottleneck
	Idle  = "idle"  // nothing is read, or the bottleneck is not known
)

// A Headline is the most important thing about a server, in one sentence.
type Headline struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Headline returns the bottleneck of the server's first job.
func (v View) Headline() Headline {
	live, ended := v.Jobs()
	if len(live) == 0 || live[0].SamplesDelivered == 0 && Activity(v.Earlier(live[0]), live[0]) == Resting {
		if len(ended) > 0 {
			return Headline{Idle, "No job is connected: " + units.Plural(int64(len(ended)), "job has", "jobs have") + " ended"}
		}
		return Headline{Idle, "No sample was requested yet"}
	}
	job := live[0]
	was := v.Earlier(job)
	if Activity(was, job) == Resting {
		if at, over := finished(job); over && job.Epochs > 0 && at == job.Epochs-1 {
			return Headline{Idle, "Training is done: " + units.Plural(int64(job.Epochs), "epoch", "epochs")}
		} else if over {
			return Headline{Idle, fmt.Sprintf("Epoch %d is done, and the next one has not begun", at)}
		}
		return Headline{Idle, "Nothing is read at the moment"}
	}
	if job.SamplesDelivered == was.SamplesDelivered && v.Seconds >= quiet && job.StallSeconds-was.StallSeconds < v.Seconds/2 {
		return Headline{Idle, "No batch was requested for " + units.Duration(v.Seconds) + ": " + units.Plural(int64(job.ReadyBatches), "batch is", "batches are") + " ready"}
	}
	return v.reading(was, job)
}

// quiet is the time in seconds after which a training loop that requests nothing does something else, such as an evaluation.
const quiet = 5

// reading returns the bottleneck of a job in its epoch.
func (v View) reading(was, job status.Job) Headline {
	_, waited := LoopWait(v, was, job)
	ready := units.Plural(int64(job.ReadyBatches), "batch was", "batches were") + " ready"
	switch job.BoundBy {
	case "consumer":
		if Reports(job) {
			return Headline{Good, "The training loop is the limit: " + ready}
		}
	case "decode":
		return Headline{Limit, "Decoding is the limit: the loop waited " + waited + ", and " + ready}
	case "source":
		switch {
		case job.KeptBytes < job.DatasetBytes:
			return Headline{Limit, fmt.Sprintf("The source is the limit: the budget keeps %s of the dataset", units.Percent(float64(job.KeptBytes), float64(job.DatasetBytes)))}
		case job.HitsEpoch < job.MissesEpoch && len(job.EpochsDone) == 0:
			return Headline{Limit, "The source is the limit: this epoch reads it once, and fills the cache"}
		}
		return Headline{Limit, "The source is the limit: " + units.Percent(float64(job.MissesEpoch), float64(job.HitsEpoch+job.MissesEpoch)) + " of this epoch came from there"}
	case "disk":
		return Headline{Limit, "The disk is the limit: " + loopOrRequests(job) + " waited " + waited}
	case "peer", "network":
		return Headline{Limit, "The network is the limit: " + loopOrRequests(job) + " waited " + waited}
	}
	if !Reports(job) {
		return Headline{Idle, "The training loop reports no waits: requests waited " + waited + ", and " + ready}
	}
	return Headline{Idle, "The limit is not known: the loop waited " + waited}
}

func loopOrRequests(job status.Job) string {
	if Reports(job) {
		return "the loop"
	}
	return "requests"
}
