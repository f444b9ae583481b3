package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"lcache/chunker"
)

// TestDecideOwner reads testdata/owner.txt. A line is a job, or a rank of the job above it. The answer is the job that should own the log's order.
//
//	owner=N [fresh]
//	job=N [gone over ondemand fits]
//	rank=N asked=SECONDS samples=N [middle holds]
//	----
//	the owner
//
// asked is the time since a rank's last request; it is late after 10 s. A job is connected unless it is gone, and a rank is between two epochs unless it is in the middle of one.
func TestDecideOwner(t *testing.T) {
	datadriven.RunTest(t, "testdata/owner.txt", func(t *testing.T, d *datadriven.TestData) string {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		holds := map[chunker.JobRank]bool{}
		v := ownerView{now: now, late: 10 * time.Second, holds: func(of chunker.JobRank) bool { return holds[of] }}
		var j *jobView
		var r *rankView
		for line := range strings.Lines(d.Input) {
			for _, field := range storyFields(t, &datadriven.TestData{Input: line, Pos: d.Pos, Cmd: d.Cmd}) {
				switch field.name {
				case "owner":
					v.owner = field.int()
				case "fresh":
					v.fresh = true
				case "job":
					v.jobs = append(v.jobs, jobView{number: field.int(), connected: true})
					j = &v.jobs[len(v.jobs)-1]
				case "gone":
					j.connected = false
				case "over":
					j.connected, j.over = false, true
				case "ondemand":
					j.onDemand = true
				case "fits":
					j.fits = true
				case "rank":
					j.ranks = append(j.ranks, rankView{number: field.int(), asked: now, between: true, samples: 1000})
					r = &j.ranks[len(j.ranks)-1]
				case "asked":
					r.asked = now.Add(-time.Duration(field.int()) * time.Second)
				case "samples":
					r.samples = field.int()
				case "middle":
					r.between = false
				case "holds":
					holds[chunker.JobRank{Job: j.number, Rank: r.number}] = true
				default:
					field.unknown()
				}
			}
		}
		return fmt.Sprintf("job %d\n", decideOwner(v))
	})
}
