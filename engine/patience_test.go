package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lcache/chunker"

	"github.com/cockroachdb/datadriven"
)

// TestDecidePatience reads testdata/patience.txt. Each paragraph is the state after a request has waited for a slot until its patience was over, and the result.
//
//	decide
//	request=E/B me=E/B rank=N/E/B cur=E [waits finished unasked moves grace slotless drained]
//	----
//	the result
//
// me is the first undelivered batch of the request's rank; waits: it was requested. finished, unasked and moves describe the rank before them. If me is omitted, it is the request's batch.
func TestDecidePatience(t *testing.T) {
	datadriven.RunTest(t, "testdata/patience.txt", func(t *testing.T, d *datadriven.TestData) string {
		v := patienceView{others: map[chunker.JobRank]standing{}}
		last := chunker.JobRank{}
		of := func(change func(*standing)) {
			s := v.others[last]
			change(&s)
			v.others[last] = s
		}
		for _, field := range storyFields(t, d) {
			switch field.name {
			case "request":
				field.read(&v.epoch, &v.batch)
				v.me, v.left = standing{asked: true, epoch: v.epoch, batch: v.batch}, v.batch
			case "me":
				field.read(&v.me.epoch, &v.me.batch)
			case "rank":
				s := standing{asked: true}
				field.read(&last.Rank, &s.epoch, &s.batch)
				v.others[last] = s
			case "finished":
				of(func(s *standing) { s.finished = true })
			case "moves":
				of(func(s *standing) { s.moves = true })
			case "grace":
				v.grace = true
			case "unasked":
				of(func(s *standing) { s.asked = false })
			case "cur":
				v.cur = logView{true, field.int()}
			case "waits":
				v.waits = true
			case "slotless":
				v.slotless = true
			case "drained":
				v.nearlyDrained = true
			default:
				field.unknown()
			}
		}
		a := decidePatience(v)
		slices.SortFunc(a.late, chunker.JobRank.Compare)
		var text []string
		if a.leave {
			text = append(text, "the batches before it are given up")
		}
		for _, n := range a.late {
			text = append(text, fmt.Sprintf("rank %d is late", n.Rank))
		}
		if a.waits {
			text = append(text, "the request waits for companions that move")
		}
		if a.givesUp {
			text = append(text, "the rank gives up waiting")
		}
		if text == nil {
			text = append(text, "nothing")
		}
		return strings.Join(text, "\n") + "\n"
	})
}
