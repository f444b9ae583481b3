// Package overview describes a server for people: the bottleneck in one sentence, the progress and waits of its jobs, and warnings.
//
// A View has two status documents of one server. Rates are computed from their difference. lcache status and the page use the same words. The package
// does no I/O and keeps no state.
package overview

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

// A View has two documents of one server.
type View struct {
	Before, Now status.Document
	Seconds     float64 // between the two
	Twin        bool    // another shown server has a job with the same name

	Past []Moment // at the last looks, the oldest first; nil: one look
}

// A Moment has the figures of one look.
type Moment struct {
	Rate   float64 // bytes delivered a second
	Waited float64 // share of waiting of the server's first job; NaN: nothing is read
}

// mostPast is the number of Moments that are kept.
const mostPast = 512

// Remember adds the figures of Now to Past.
func (v *View) Remember() {
	if v.Seconds <= 0 {
		return
	}
	m := Moment{Rate: float64(max(v.Now.Totals.BytesDelivered-v.Before.Totals.BytesDelivered, 0)) / v.Seconds, Waited: math.NaN()}
	if live, _ := v.Jobs(); len(live) > 0 && Activity(v.Earlier(live[0]), live[0]) != Resting {
		if _, wait, of := v.Waited(v.Earlier(live[0]), live[0]); of > 0 {
			m.Waited = min(max(wait/of, 0), 1)
		}
	}
	v.Past = append(v.Past[max(len(v.Past)+1-mostPast, 0):], m)
}

// Earlier is a job in the earlier document, or the job itself if it is new.
func (v View) Earlier(job status.Job) status.Job {
	for _, was := range v.Before.Jobs {
		if was.ID == job.ID && !was.Ended && was.ChunksDelivered <= job.ChunksDelivered {
			return was
		}
	}
	return job
}

// Title names the dataset of a job, and the cache folder and process if another shown job has the same name.
func (v View) Title(job status.Job) string {
	if !v.Twin {
		return usage.Name(job.Name)
	}
	folder := ""
	if len(v.Now.Cache.Dirs) > 0 {
		folder = usage.Name(filepath.Base(v.Now.Cache.Dirs[0])) + ", "
	}
	return fmt.Sprintf("%s (%spid %d)", usage.Name(job.Name), folder, v.Now.Pid)
}

// JobName names a job: by its token if a user chose it, else by its process.
func JobName(job status.Job) string {
	name, ok := usage.JobName(job.ID)
	switch {
	case ok:
		return name
	case len(job.Pids) > 0:
		return "pid " + PidText(job)
	}
	return "without a name"
}

// PidText lists the processes of a job's ranks.
func PidText(job status.Job) string {
	var pids []string
	for _, pid := range job.Pids {
		pids = append(pids, fmt.Sprint(pid))
	}
	return strings.Join(pids, ", ")
}

// Bottleneck names the bottleneck of a job; "": not known. Without reports of its waits, the training loop is not known to be the slow part.
func Bottleneck(job status.Job) string {
	switch job.BoundBy {
	case "consumer":
		if !Reports(job) {
			return ""
		}
		return "training loop"
	case "decode":
		return "decoding"
	case "peer":
		return "other machines"
	case "source", "disk":
		return job.BoundBy
	}
	return ""
}

// Reports returns whether the training loop has reported how long it ran.
func Reports(job status.Job) bool {
	return job.LoopWaitSeconds != nil && job.LoopSeconds != nil && *job.LoopSeconds > 0
}

// Jobs and servers are shown in this order.
const (
	Reading = iota // samples are delivered
	Waiting        // a rank is in an epoch
	Resting        // between epochs, or no sample was requested yet
)

// Activity says where a job stands among others.
func Activity(was, job status.Job) int {
	if job.SamplesDelivered > was.SamplesDelivered {
		return Reading
	}
	for _, r := range job.Ranks {
		if r.Pid != 0 && !r.Finished {
			return Waiting
		}
	}
	return Resting
}

// Order is that of the server's first job.
func (v View) Order() int {
	first := Resting + 1
	live, _ := v.Jobs()
	for _, job := range live {
		first = min(first, Activity(v.Earlier(job), job))
	}
	return first
}

// Jobs returns the live jobs of a server, the reading ones first, and the ended ones.
func (v View) Jobs() (live, ended []status.Job) {
	live, ended = ByLife(v.Now.Jobs)
	slices.SortStableFunc(live, func(a, b status.Job) int { return Activity(v.Earlier(a), a) - Activity(v.Earlier(b), b) })
	return live, ended
}

// ByLife returns the live and the ended jobs of a document.
func ByLife(jobs []status.Job) (live, ended []status.Job) {
	for _, j := range jobs {
		if j.Ended {
			ended = append(ended, j)
		} else {
			live = append(live, j)
		}
	}
	return live, ended
}
