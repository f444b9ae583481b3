package disk

import (
	"os"
	"testing"

	"lcache/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }

// TestRoom: the files of all jobs share the room. A job's own file is part of its reservation, even while it is being
// replaced. After the job, only its file counts.
func TestRoom(t *testing.T) {
	r := room{total: 1000, taken: map[string]int64{}}
	files := []file{{name: "a", bytes: 100}, {name: "a.new", bytes: 100}, {name: "old", bytes: 300}}
	if n := r.lack("a", 800, files); n != 200 { // a.new does not belong to the job yet
		t.Errorf("with old and a.new, a lacks %d bytes, want 200", n)
	}
	if r.take("a", 700) {
		t.Error("a took more than the room leaves")
	}
	if !r.take("a", 600) || !r.take("a", 200) || r.of("a") != 600 {
		t.Errorf("a has %d bytes, want 600", r.of("a"))
	}
	if !r.has("a") || !r.has("a.new") || r.has("old") || !r.isUsed() {
		t.Error("a job is taken for another one")
	}
	if n := r.lack("b", 200, files); n != 100 {
		t.Errorf("b lacks %d bytes, want 100", n)
	}
	if r.take("a", 701) || !r.take("a", 700) {
		t.Error("a can't grow into the free room")
	}
	r.giveBack("a", 100)
	if n := r.lack("b", 500, files); r.isUsed() || n != 0 {
		t.Errorf("with three files, b lacks %d bytes, want none", n)
	}
	if !r.take("b", 500) || r.take("c", 1) {
		t.Error("the three files and b don't take the whole room")
	}
}
