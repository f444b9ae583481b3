package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
)

// TestImportanceNeedsOneMachine: a training with ranks on other machines gets an error at once, and leaves nothing behind. Its ranks need not agree on the number of machines.
func TestImportanceNeedsOneMachine(t *testing.T) {
	_, o := small(t, schedule.Job{World: 16})
	e := open(t, o)
	defer closeEngine(t, e)
	_, err := e.Importance(t.Context(), 0, 0, "run", []byte(`{"method":"shade","batch_size":16,"local_world_size":8}`))
	var refused *deliver.ArgumentError
	if !errors.As(err, &refused) || e.Status().Jobs[0].Importance != nil {
		t.Errorf("a job with 8 of 16 ranks here: %v; it has importance: %v", err, e.Status().Jobs[0].Importance != nil)
	}
	for rank, text := range []string{`"local_world_size":16`, `"local_world_size":null`, `"local_world_size":20`, `"seed":null`} {
		if _, err := e.Importance(t.Context(), 0, rank, "run", []byte(`{"method":"shade","batch_size":16,`+text+`}`)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestBoundaryWithoutRanks: the first boundary without some rank warns once and names the ranks, unless the client knows that all ranks run on this machine.
func TestBoundaryWithoutRanks(t *testing.T) {
	d, o := small(t, schedule.Job{World: 5})
	for k, c := range []struct {
		name   string
		text   string
		late   time.Duration
		joined []int // ranks that ask for importance
		trains []int
		want   string // ranks that are named; "": no warning
	}{
		{"some are on another machine", "", time.Minute, []int{0, 3}, []int{0, 3}, "1-2,4"},
		{"one has joined, and does not end the epoch", "", 50 * time.Millisecond, []int{0, 1}, []int{0}, "1-4"},
		{"all are here", "", time.Minute, []int{0, 1, 2, 3, 4}, []int{0, 1, 2, 3, 4}, ""},
		{"all are known to be here", `"local_world_size":5,`, time.Minute, []int{0, 3}, []int{0, 3}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, log := o, logged{}
			o.Logger, o.LateEpoch = log.logger(), c.late
			e := open(t, o)
			defer closeEngine(t, e)
			number, err := e.Join(c.name)
			if err != nil {
				t.Fatal(err)
			}
			l := losing{d: d, e: e, job: number, world: 5}
			for _, rank := range c.joined {
				l.ask(t, rank, `{`+c.text+fmt.Sprintf(`"name":"n%d",`, k)+fmt.Sprintf(shade, 0)[1:])
			}
			client := attach(t, e)
			defer client.Disconnected()
			for epoch := range 3 {
				for _, rank := range c.trains {
					if _, err := l.train(client, epoch, rank, 0); err != nil {
						t.Fatal(err)
					}
				}
				for _, rank := range c.trains {
					e.EndEpoch(number, rank, score.Progress{Epoch: epoch}, Unsent{})
				}
			}
			lines := log.lines("needs all ranks on one machine")
			if c.want == "" && len(lines) > 0 || c.want != "" && (len(lines) != 1 || !strings.Contains(lines[0], "ranks="+c.want+"\n")) {
				t.Errorf("logged %q, want ranks %q", lines, c.want)
			}
		})
	}
}
