package engine

import (
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/schedule"
	"lcache/reorder"
	"lcache/sample"
)

// TestSlowestSegment: the window keeps the first segment that a rank in time is at, for all positions of ranks. The log is of epoch 3 of epochs 0 to 4, and its segment k delivers sample k of ten.
func TestSlowestSegment(t *testing.T) {
	const segments, epoch = 10, 3
	layout := &chunker.EpochLayout{Used: segments, Starts: []uint64{0}}
	for k := range segments {
		layout.Order, layout.Segment, layout.Starts = append(layout.Order, sample.Index(k)), append(layout.Segment, uint32(k)), append(layout.Starts, uint64(k+1))
	}
	// stands is a rank's position: the segment of a sample of its first undelivered batch or, if that was not requested, of the batch before.
	type stands struct {
		epoch, seg    int
		finished      bool // the epoch
		idle          bool // the first undelivered batch was not requested
		late, unasked bool
		follows       bool // it belongs to another job with the owner's order
		brought       bool // with follows: the window has brought it its epoch
	}
	for _, c := range []struct {
		name  string
		last  bool // epoch 3 is the job's last one
		ranks []stands
		want  int
	}{
		{"no request was received", false, []stands{{unasked: true}}, 0},
		{"all in the epoch", false, []stands{{epoch: 3, seg: 7}, {epoch: 3, seg: 4}}, 4},
		{"one has asked for nothing yet", false, []stands{{epoch: 3, seg: 7}, {unasked: true}}, 7},
		{"the first batch was not requested", false, []stands{{epoch: 3, seg: 7, idle: true}}, 7},
		{"one in the epoch before", false, []stands{{epoch: 3, seg: 7}, {epoch: 2, seg: 9}}, 0},
		{"one between the epoch before and this one", false, []stands{{epoch: 3, seg: 7}, {epoch: 2, seg: 9, finished: true}}, 0},
		{"the same, with the last batch as its front", false, []stands{{epoch: 3, seg: 7}, {epoch: 2, seg: 9, finished: true, idle: true}}, 0},
		{"all between the epoch before and this one", false, []stands{{epoch: 2, seg: 9, finished: true}}, 0},
		{"one has finished the epoch", false, []stands{{epoch: 3, seg: 2, finished: true}, {epoch: 3, seg: 6}}, 6},
		{"one is in the epoch after", false, []stands{{epoch: 4, seg: 2}, {epoch: 3, seg: 6}}, 6},
		{"all have finished the epoch", false, []stands{{epoch: 3, seg: 9, finished: true}, {epoch: 4, seg: 1}}, segments},
		{"all have finished the last epoch", true, []stands{{epoch: 3, seg: 9, finished: true}}, segments},
		{"one has not finished the last epoch", true, []stands{{epoch: 3, seg: 9, finished: true}, {epoch: 3, seg: 5}}, 5},
		{"a late one is not waited for", false, []stands{{epoch: 3, seg: 7}, {epoch: 3, seg: 4, late: true}}, 7},
		{"all are late", false, []stands{{epoch: 3, seg: 7, late: true}, {epoch: 3, seg: 4, late: true}}, 4},
		{"the only one that has not finished is late", false, []stands{{epoch: 4, seg: 1}, {epoch: 3, seg: 4, late: true}}, 4},
		{"a late one between two epochs", false, []stands{{epoch: 3, seg: 7}, {epoch: 2, seg: 9, finished: true, late: true}}, 7},
		{"a companion behind", false, []stands{{epoch: 3, seg: 7}, {epoch: 3, seg: 4, follows: true}}, 4},
		{"a companion that comes from the epoch before", false, []stands{{epoch: 3, seg: 7}, {epoch: 2, seg: 4, follows: true, brought: true}}, 0},
		{"a companion between two epochs", false, []stands{{epoch: 3, seg: 7}, {epoch: 2, seg: 9, finished: true, follows: true, brought: true}}, 0},
		{"a companion that the window did not bring the epoch before", false, []stands{{epoch: 3, seg: 7}, {epoch: 2, seg: 4, follows: true}}, 7},
		{"a companion that has finished the epoch", false, []stands{{epoch: 3, seg: 7}, {epoch: 3, seg: 9, finished: true, follows: true}}, 7},
		{"a companion, when the owner has finished", false, []stands{{epoch: 4, seg: 1}, {epoch: 3, seg: 8, follows: true}}, 8},
	} {
		epochs := epoch + 2
		if c.last {
			epochs = epoch + 1
		}
		e := &Engine{jobs: map[int]*job{}}
		for number := range 2 {
			s, err := schedule.New(schedule.Job{Epochs: epochs}, segments)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			e.jobs[number] = &job{number: number, token: "job", users: 1, schedule: s, ranks: map[int]*rank{}, alike: map[int]bool{2: true, 3: true, 4: true}}
		}
		e.owner, e.cur, e.segs = e.jobs[0], &reorder.EpochLog{Epoch: epoch, Layout: layout}, make([]segState, segments)
		for n, at := range c.ranks {
			j := e.owner
			if at.follows {
				j = e.jobs[1]
			}
			r := j.rank(n)
			if at.unasked {
				continue
			}
			r.asked, r.outOfWindow = time.Now(), at.late
			r.ask(at.epoch, 0, []sample.Index{sample.Index(at.seg)})
			if at.idle {
				r.deliver(0)
			}
			if r.finished = at.finished; at.brought {
				r.broughtTo = at.epoch
			}
		}
		if got := e.slowestSegment(); got != c.want {
			t.Errorf("%s: segment %d, want %d", c.name, got, c.want)
		}
	}
}
