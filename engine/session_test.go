package engine

import (
	"os"
	"slices"
	"testing"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// TestPushIsTheSessionsOwn: if there is a recipe, an order that one session pushes does not apply to other sessions, in any order of requests.
func TestPushIsTheSessionsOwn(t *testing.T) {
	j := samplerJob(3, 16, 1, false)
	d, o := small(t, j)
	e := open(t, o)
	defer closeEngine(t, e)
	mine, other, recipe := attach(t, e), attach(t, e), attach(t, e)
	want := map[int][]sample.Index{}
	for epoch := range 2 {
		want[epoch] = d.want(t, j, epoch, 0)
	}
	pushed := slices.Clone(want[0])
	slices.Reverse(pushed)
	read := func(who string, c *deliver.Client, epoch int, want []sample.Index) {
		t.Helper()
		if got, err := d.readRank(e, c, epoch, 0, 0); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s, epoch %d: other samples than its order has, %v", who, epoch, err)
		}
	}
	if err := e.Push(schedule.Pusher{Pid: os.Getpid(), Session: mine.Token}, 0, 0, slices.Collect(slices.Chunk(pushed, 16))); err != nil {
		t.Fatal(err)
	}
	read("the recipe's session", recipe, 0, want[0])
	read("the session that pushed", mine, 0, pushed)
	read("the recipe's session again", recipe, 0, want[0])
	read("the recipe's session", recipe, 1, want[1])
	if err := e.Push(schedule.Pusher{Pid: os.Getpid(), Session: other.Token}, 0, 0, slices.Collect(slices.Chunk(want[0], 16))); err != nil {
		t.Fatal(err)
	}
	read("the recipe's session", recipe, 0, want[0])
	read("a session that pushed the recipe's order", other, 0, want[0])
}
