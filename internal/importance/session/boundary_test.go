package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"lcache/internal/importance/score"
)

// TestBoundary reads testdata/boundary.txt. Each paragraph has the ranks that share an epoch.
//
//	boundary world=N epoch=E published=E,E…
//	RANK joins RUN | RANK asks E | RANK names E | RANK ends E | RANK ends E, looks | S seconds later | E is published | boundary | boundary after a look | boundary fails
//	----
//	the positions of the ranks after each line, and the worker's decision
//
// A rank that was silent for 10 seconds may be gone, and the ranks inside an epoch have 30 seconds. "boundary" makes
// the boundary that was decided.
func TestBoundary(t *testing.T) {
	datadriven.RunTest(t, "testdata/boundary.txt", func(t *testing.T, d *datadriven.TestData) string {
		published := map[int]bool{}
		p := positions{silence: 10 * time.Second, published: func(epoch int) bool { return published[epoch] }, ranks: map[int]*rankState{}}
		d.ScanArgs(t, "world", &p.world)
		d.ScanArgs(t, "epoch", &p.epoch)
		var epochs string
		d.MaybeScanArgs(t, "published", &epochs)
		for _, epoch := range strings.Split(epochs, ",") {
			n := 0
			if _, err := fmt.Sscan(epoch, &n); err == nil {
				published[n] = true
			}
		}
		began := time.Unix(1e9, 0)
		now := began
		var story strings.Builder
		for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			step := decideBoundary(now, p.view(30*time.Second))
			var n, epoch int
			var run string
			switch is := func(form string, to ...any) bool {
				k, err := fmt.Sscanf(line, form+"\n", to...)
				return err == nil && k == len(to)
			}; {
			case is("%d joins %s", &n, &run):
				p.join(now, n, run, false)
			case is("%d asks %d", &n, &epoch):
				p.asks(now, n, epoch)
			case is("%d names %d", &n, &epoch):
				p.names(now, n, epoch)
			case is("%d ends %d, looks", &n, &epoch):
				p.ends(now, n, score.Progress{Epoch: epoch}, true)
			case is("%d ends %d", &n, &epoch):
				p.ends(now, n, score.Progress{Epoch: epoch}, false)
			case is("%d seconds later", &n):
				now = now.Add(time.Duration(n) * time.Second)
			case is("%d is published", &epoch):
				published[epoch] = true
			case line == "boundary fails":
				p.failed(now, false)
			case strings.HasPrefix(line, "boundary") && step.to >= 0:
				published[step.to] = true
				p.made(now, step.to, step.to, line == "boundary after a look")
			default:
				d.Fatalf(t, "invalid line %q, or no boundary to make", line)
			}
			fmt.Fprintf(&story, "%s → epoch %d", line, p.epoch)
			for _, rank := range slices.Sorted(maps.Keys(p.ranks)) {
				if at := p.ranks[rank].at; at >= 0 {
					fmt.Fprintf(&story, ", %d in %d", rank, at)
				} else {
					fmt.Fprintf(&story, ", %d silent", rank)
				}
			}
			step = decideBoundary(now, p.view(30*time.Second))
			fmt.Fprintf(&story, "; %s", step)
			if !step.until.IsZero() {
				fmt.Fprintf(&story, " for %v", step.until.Sub(now))
			}
			if p.lookTook > 0 {
				fmt.Fprintf(&story, "; the look took %v", p.lookTook)
			}
			story.WriteByte('\n')
		}
		return story.String()
	})
}

// TestBoundaryOfAnyOrder: the decision does not depend on the order of the ranks.
func TestBoundaryOfAnyOrder(t *testing.T) {
	now := time.Unix(1e9, 0)
	v := boundaryView{epoch: 5, published: func(int) bool { return false }, silence: time.Second, patience: time.Minute}
	for n, at := range []int{0, 2, 1, 7, 6, 8, -1} {
		v.ranks = append(v.ranks, rankState{at: at, seen: now.Add(time.Duration(n) * time.Millisecond), leftAt: now.Add(time.Duration(-n) * time.Second), left: []int{6 + n%2}})
	}
	want := decideBoundary(now, v)
	for range v.ranks {
		v.ranks = append(v.ranks[1:], v.ranks[0])
		if got := decideBoundary(now, v); got != want {
			t.Errorf("%+v, and in another order %+v", got, want)
		}
	}
}

// TestProgressOfTheLowestRank: the lowest rank's report about an epoch counts, and of its reports the last.
func TestProgressOfTheLowestRank(t *testing.T) {
	p := positions{world: 4, epoch: 3, published: func(int) bool { return true }, ranks: map[int]*rankState{}}
	accuracy := func(x float64) *float64 { return &x }
	for _, said := range []struct {
		rank, epoch int
		accuracy    float64
	}{{2, 3, 0.2}, {1, 3, 0.1}, {1, 3, 0.15}, {0, 4, 0.9}, {0, 2, 0.8}, {9, 3, 0.7}, {-1, 3, 0.6}, {3, 3, 0.3}} {
		p.ends(time.Now(), said.rank, score.Progress{Epoch: said.epoch, Accuracy: accuracy(said.accuracy)}, false)
	}
	if got := p.progress(); got.Accuracy == nil || *got.Accuracy != 0.15 {
		t.Errorf("%+v", got)
	}
	p.made(time.Now(), 4, 4, false)
	if got := p.progress(); got.Accuracy == nil || *got.Accuracy != 0.9 {
		t.Errorf("of the next epoch: %+v", got)
	}
}

// TestWorldsAreBounded: a rank that the job does not have is not recorded.
func TestWorldsAreBounded(t *testing.T) {
	p := positions{world: 2, epoch: 1, published: func(int) bool { return true }, ranks: map[int]*rankState{}}
	for _, rank := range []int{-1, 2, 1 << 31, 1 << 40} {
		p.join(time.Now(), rank, "run", false)
		p.names(time.Now(), rank, 2)
		p.asks(time.Now(), rank, 2)
		p.ends(time.Now(), rank, score.Progress{Epoch: 1}, false)
	}
	if len(p.ranks) > 0 {
		t.Errorf("%d ranks of no job", len(p.ranks))
	}
}
