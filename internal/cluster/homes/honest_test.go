package homes

import (
	"math/rand/v2"
	"testing"
)

// disksOf returns disks that hold some samples, with the room that is left.
func disksOf(all []Sample, room uint64, held func(i int) bool) Store {
	left := room
	for i, s := range all {
		if held(i) {
			left -= min(left, s.Padded)
		}
	}
	return Store{Room: room, Left: left, Held: held}
}

// checkPart compares a Part with the sums over all samples.
func checkPart(t *testing.T, name string, ranks []uint16, all []Sample, disks Store, threshold Threshold, p Part) {
	t.Helper()
	var given, lacks, unassigned uint64
	for i, s := range all {
		switch keeps, isHeld := threshold.Keeps(ranks[s.Bin], s.Name), disks.Held(i); {
		case keeps && isHeld:
			given += s.Padded
		case keeps:
			lacks += s.Padded
		case isHeld:
			unassigned += s.Padded
		}
	}
	gets := min(lacks, disks.Left)
	if want := (Part{Kept: given + gets, Missing: lacks - gets, Unassigned: unassigned}); p != want {
		t.Errorf("%s: %+v, want %+v", name, p, want)
	}
}

// TestBelievable: what disks hold of an earlier roster changes what a peer announces only where it could not keep its word.
func TestBelievable(t *testing.T) {
	all := samples(4, 40_000)
	var total uint64
	for _, s := range all {
		total += s.Padded
	}
	three, four := New(peers(1, 1, 1, 1), make([]uint64, Bins)).Ranks(0), New(peers(1, 1, 1, 1, 1), make([]uint64, Bins)).Ranks(0)
	third, quarter := total/3, total/4
	thresholdOfThree, _ := largest(three, 3, all, third)
	thresholdOfFour, _ := largest(four, 4, all, quarter)
	r := rand.New(rand.NewPCG(5, 5))
	some := make([]bool, len(all)) // of those that the roster gives
	for i, s := range all {
		some[i] = thresholdOfThree.Keeps(three[s.Bin], s.Name) && r.IntN(100) > 0
	}
	const all64 = 1<<64 - 1
	alone := uint64(all64 / 3) // names below it are on the disks of a machine that was alone
	for name, c := range map[string]struct {
		room uint64
		left uint64 // at most
		held func(i int) bool
		ok   func(threshold, most Threshold, p Part) bool
	}{
		"empty disks": {third, third, func(int) bool { return false },
			func(threshold, most Threshold, p Part) bool {
				return threshold == most && p.Missing == 0 && p.Unassigned == 0
			}},
		"a part of what is given": {third, third, func(i int) bool { return some[i] },
			func(threshold, most Threshold, p Part) bool {
				return threshold == most && p.Missing == 0 && p.Unassigned == 0
			}},
		"a part of what is given, and gaps between samples take the rest": {third, 0, func(i int) bool { return some[i] },
			func(threshold, most Threshold, p Part) bool { return threshold == most && p.Missing > 0 }},
		"full of what a machine alone keeps": {third, third, func(i int) bool { return all[i].Name < alone },
			func(threshold, _ Threshold, p Part) bool {
				return threshold > One*32/100 && threshold < One*36/100 && p.Missing <= third/100 && p.Unassigned > third*6/10
			}},
		"full of what four machines gave": {quarter, quarter, func(i int) bool { return thresholdOfFour.Keeps(four[all[i].Bin], all[i].Name) },
			func(threshold, most Threshold, p Part) bool {
				return threshold >= most/100*99
			}},
		"no room, and nothing held": {third, 0, func(int) bool { return false },
			func(threshold, _ Threshold, p Part) bool { return threshold == 0 && p == Part{} }},
		"room for everything": {total, 0, func(int) bool { return true },
			func(threshold, _ Threshold, p Part) bool {
				return threshold == 3*One && p.Kept == total && p.Missing == 0
			}},
	} {
		disks := disksOf(all, c.room, c.held)
		disks.Left = min(disks.Left, c.left)
		most, _ := largest(three, 3, all, c.room)
		threshold, p := Believable(three, 3, len(all), func(i int) Sample { return all[i] }, disks)
		checkPart(t, name, three, all, disks, threshold, p)
		if threshold > most || !c.ok(threshold, most, p) {
			t.Errorf("%s: threshold %.3f of %.3f, %+v of %d", name, threshold.Float(), most.Float(), p, c.room)
		}
	}
}

// TestSurvivorIsBelievable: of eight machines with full disks one is gone. A survivor goes on to give what it holds: a threshold that gave only what fits
// would be much lower.
func TestSurvivorIsBelievable(t *testing.T) {
	all := samples(6, 60_000)
	var total uint64
	for _, s := range all {
		total += s.Padded
	}
	room := total / 7
	before, after := New(peers(1, 1, 1, 1, 1, 1, 1, 1, 1), make([]uint64, Bins)).Ranks(2), New(peers(1, 1, 1, 1, 1, 1, 1, 1), make([]uint64, Bins)).Ranks(2)
	was, _ := largest(before, 8, all, room)
	disks := disksOf(all, room, func(i int) bool { return was.Keeps(before[all[i].Bin], all[i].Name) })
	threshold, p := Believable(after, 7, len(all), func(i int) Sample { return all[i] }, disks)
	checkPart(t, "survivor", after, all, disks, threshold, p)
	strict, _ := Largest(after, 7, len(all), func(i int) Sample { // gives only what is held or fits
		s := all[i]
		if disks.Held(i) {
			s.Padded = 0
		}
		return s
	}, disks.Left)
	t.Logf("threshold %.4f, strict %.4f, %+v of %d", threshold.Float(), strict.Float(), p, room)
	if threshold < One*95/100 || strict > One/5 || p.Missing > room/8 {
		t.Errorf("threshold %.4f, strict %.4f, %+v of %d", threshold.Float(), strict.Float(), p, room)
	}
}
