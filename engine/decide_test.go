package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"

	"lcache/internal/plan"
)

// TestDecide reads testdata/decide.txt. Each paragraph is a state, then the mover's action in it, and why.
//
//	decide
//	read=E cur=E tgt=E unloaded=K unscanned=K unused=K loading=N inslots=N known=E,E… laidout=E,E… [a flag for each other field of view]
//	----
//	the action, and why
//
// Omitted fields have their usual values: a request was received, a rank is in time, a Logfile can be begun, nothing is loading. If cur or tgt is
// omitted, that Logfile does not exist; -1 is a Logfile in an unknown order. A full log in another order stays as it is unless the paragraph says "open" or "sort".
func TestDecide(t *testing.T) {
	datadriven.RunTest(t, "testdata/decide.txt", func(t *testing.T, d *datadriven.TestData) string {
		v := view{requested: true, inTime: true, mayBegin: true, choice: plan.InPlace, unloaded: -1, unscanned: -1, unused: -1, pack: -1}
		var known, laidOut []int
		sparse := false
		for _, field := range storyFields(t, d) {
			switch field.name {
			case "read":
				v.readEpoch = field.int()
			case "cur":
				v.cur.exists = true
				v.cur.epoch = field.int()
			case "tgt":
				v.tgt.exists = true
				v.tgt.epoch = field.int()
			case "unloaded":
				v.unloaded = field.int()
			case "unscanned":
				v.unscanned = field.int()
			case "unused":
				v.unused = field.int()
			case "loading":
				v.loading = field.int()
			case "inslots":
				v.inSlots = field.int()
			case "known":
				known = field.list()
			case "laidout":
				laidOut = field.list()
			case "unrequested":
				v.requested = false
			case "unidentified":
				v.unidentified = true
			case "comparable":
				v.comparable = true
			case "sparse":
				sparse = true
			case "alllate":
				v.inTime = false
			case "paused":
				v.paused = true
			case "open", "sort", "place":
				v.choice = map[string]plan.Choice{"open": plan.Wait, "sort": plan.Sort, "place": plan.InPlace}[field.name]
			case "sorting":
				v.sorting = true
			case "failed":
				v.mayBegin = false
			case "pack":
				v.pack = field.int()
			case "hollow":
				v.hollow = true
			case "packs":
				v.packs = true
			case "inplace":
				v.inPlace = true
			default:
				field.unknown()
			}
		}
		v.sparse = func() bool { return sparse }
		v.complete = func(epoch int) bool { return slices.Contains(known, epoch) }
		v.laidOut = func(epoch int) bool { return slices.Contains(laidOut, epoch) }
		switch d.Cmd {
		case "decide":
			a := decide(v)
			return fmt.Sprintf("%s\nbecause %s\n", a, a.why)
		case "waits-for":
			if next := v.outlook().next; next >= 0 {
				return fmt.Sprintf("requests of epoch %d wait for the pass\n", next)
			}
			return "no request waits for another epoch\n"
		}
		d.Fatalf(t, "decide or waits-for, not %s", d.Cmd)
		return ""
	})
}

// TestEpochRead: the epoch that is read follows the active ranks.
func TestEpochRead(t *testing.T) {
	for _, c := range []struct {
		story       string
		active      []int
		cur, before int
		want        int
	}{
		{"no rank is active: nothing changes", nil, 3, 2, 2},
		{"one rank is in the log's epoch", []int{3}, 3, 2, 3},
		{"some ranks have gone on, one is still in the log's epoch", []int{4, 3, 4}, 3, 3, 3},
		{"all have gone on", []int{4, 4}, 3, 3, 4},
		{"one has gone on further", []int{4, 6}, 3, 3, 6},
		{"the job began again", []int{0}, 3, 3, 0},
		{"the log is in no epoch's order", []int{2}, -1, 0, 2},
	} {
		if got := epochRead(c.active, c.cur, c.before); got != c.want {
			t.Errorf("%s: epoch %d, want %d", c.story, got, c.want)
		}
	}
}
