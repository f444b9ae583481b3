package lcache_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// rooms are the folders that a reader tells apart, each with all that is below it, from the top of the house down. Other folders below internal are leaves: small packages that
// rooms share, and not counted among them.
var rooms = []string{"cmd/lcache", "server", "engine", "internal/cluster", "internal/peer", "internal/importance", "internal/store", "reorder", "internal/serve", "source", "logfile", "metaindex", "chunker", "sample",
	"internal/disk", "iouring", "shuffle"}

// above returns the folder of a list that contains a package; "": none does.
func above(name string, folders []string) string {
	for _, folder := range folders {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			return folder
		}
	}
	return ""
}

// roomOf returns the room that contains a package, or the package itself if it is a leaf; "": neither.
func roomOf(name string) string {
	if room := above(name, rooms); room != "" {
		return room
	}
	if leaf, ok := strings.CutPrefix(name, "internal/"); ok {
		leaf, _, _ = strings.Cut(leaf, "/")
		return "internal/" + leaf
	}
	return ""
}

// floorPlan is which room or leaf imports which other, with the imports of packages that make it so.
type floorPlan map[string]map[string][]string

// floorPlanOf makes the plan of the imports that go list shows.
func floorPlanOf(t *testing.T, all []pkg) floorPlan {
	t.Helper()
	plan := floorPlan{}
	for _, p := range all {
		name, _ := local(p.ImportPath)
		from := roomOf(name)
		if from == "" {
			t.Errorf("package %s is not in a room, and not a leaf below internal", p.ImportPath)
			continue
		}
		if plan[from] == nil {
			plan[from] = map[string][]string{}
		}
		for _, imported := range p.Imports {
			if to, ours := local(imported); ours && roomOf(to) != from {
				plan[from][roomOf(to)] = append(plan[from][roomOf(to)], name+" imports "+to)
			}
		}
	}
	return plan
}

// circle returns a cycle of rooms and leaves: each imports the next, and the last imports the first. nil: there is no cycle.
func (plan floorPlan) circle() (around []string) {
	done := map[string]bool{}
	var visit func(room string, path []string) bool
	visit = func(room string, path []string) bool {
		if at := slices.Index(path, room); at >= 0 {
			around = slices.Clone(path[at:])
			return true
		}
		if done[room] {
			return false
		}
		done[room] = true
		for _, to := range slices.Sorted(maps.Keys(plan[room])) {
			if visit(to, append(path, room)) {
				return true
			}
		}
		return false
	}
	for _, room := range slices.Sorted(maps.Keys(plan)) {
		if visit(room, nil) {
			return around
		}
	}
	return nil
}

// height is where a room stands in the list from the top down, and 0 for a leaf: a circle has an arrow to something higher.
func height(room string) int {
	if at := slices.Index(rooms, room); at >= 0 {
		return len(rooms) - at
	}
	return 0
}

// floor returns the number of rooms on the longest path of imports down from a room, including the room.
func (plan floorPlan) floor(room string) (floor int) {
	for to := range plan[room] {
		floor = max(floor, plan.floor(to))
	}
	if slices.Contains(rooms, room) {
		floor++
	}
	return floor
}

// TestRooms: no room imports one that imports it, by whichever of their packages and whatever way around. With -v it says how many rooms, floors and arrows there are.
func TestRooms(t *testing.T) {
	plan := floorPlanOf(t, packages(t))
	if around := plan.circle(); around != nil {
		for i, from := range around {
			if to := around[(i+1)%len(around)]; height(to) > height(from) {
				t.Errorf("%s → %s closes a circle of rooms, %s: %s", from, to, strings.Join(append(around, around[0]), " → "), strings.Join(plan[from][to], ", "))
			}
		}
		return
	}
	floors, arrows := map[int][]string{}, 0
	for _, room := range rooms {
		if _, ok := plan[room]; !ok {
			t.Errorf("room %s has no package", room)
		}
		floor := plan.floor(room)
		floors[floor] = append(floors[floor], room)
		for to := range plan[room] {
			if slices.Contains(rooms, to) {
				arrows++
			}
		}
	}
	t.Logf("%d rooms on %d floors, with %d arrows; %d leaves", len(rooms), len(floors), arrows, len(plan)-len(rooms))
	for floor := len(floors); floor > 0; floor-- {
		t.Logf("%d: %s", floor, strings.Join(floors[floor], ", "))
	}
}
