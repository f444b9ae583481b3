package events

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lcache/internal/serve/status"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// story is a Watcher whose state a test changes.
type story struct {
	w     Watcher
	state State
}

func begun() *story {
	s := &story{state: State{At: start, Devices: []status.Device{{Dir: "/a", State: "normal"}, {Dir: "/b", State: "normal"}}, Layout: "log", Jobs: []JobState{{Number: 0, Name: "recipe"}}}}
	s.w.Look(s.state)
	return s
}

// after looks again, some seconds later, at a changed state.
func (s *story) after(seconds int, change func(*State)) (said []string) {
	next := s.state
	next.Devices, next.Jobs = slices.Clone(next.Devices), slices.Clone(next.Jobs)
	next.At = next.At.Add(time.Duration(seconds) * time.Second)
	if change != nil {
		change(&next)
	}
	s.state = next
	for _, e := range s.w.Look(next) {
		if want := next.At.Format(time.RFC3339); e.Time != want {
			said = append(said, "time "+e.Time+", want "+want)
		}
		said = append(said, e.Kind+": "+e.Text)
	}
	return said
}

// TestFirstLook: what is wrong from the start is an event, and so is a job that comes at once.
func TestFirstLook(t *testing.T) {
	s := &story{state: State{At: start, Devices: []status.Device{{Dir: "/a", State: "normal"}, {Dir: "/b", State: "aside", LastError: "not mounted"}}, Layout: "static", Jobs: []JobState{{Number: 1, Name: "run-7"}}}}
	expect(t, s.after(0, nil), "device: /b was quarantined (not mounted): its samples come from the source", "job: job run-7 came")
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNothingHappens(t *testing.T) {
	s := begun()
	for range 30 {
		expect(t, s.after(1, nil))
	}
}

func TestDevices(t *testing.T) {
	s := begun()
	expect(t, s.after(1, func(s *State) { s.Devices[1].State, s.Devices[1].LastError = "aside", "input/output error" }),
		"device: /b was quarantined (input/output error): its samples come from the source")
	expect(t, s.after(1, nil))
	expect(t, s.after(1, func(s *State) { s.Devices[1].State = "read-only" }), "device: /b became read-only (input/output error): it takes no new blocks")
	expect(t, s.after(1, func(s *State) { s.Devices[1].State = "normal" }), "device: /b works again")
}

func TestLayout(t *testing.T) {
	s := begun()
	expect(t, s.after(1, func(s *State) { s.Layout, s.Reason = "static", "the loop never waits" }), "layout: the layout changed from log to static: the loop never waits")
}

func TestJobs(t *testing.T) {
	s := begun()
	expect(t, s.after(1, func(s *State) {
		s.Jobs = append(s.Jobs, JobState{Number: 1, Name: "run-7"}, JobState{Number: 2, Name: "pid 4711"})
	}), "job: job run-7 came", "job: job pid 4711 came")
	expect(t, s.after(1, func(s *State) { s.Jobs = slices.Delete(s.Jobs, 1, 2) }), "job: job run-7 went")
	expect(t, s.after(1, func(s *State) { s.Jobs = append(s.Jobs, JobState{Number: 3, Name: "run-7"}) }), "job: job run-7 came")
}

// TestBottleneck: a bottleneck that lasts is an event, once; one that goes back and forth is none.
func TestBottleneck(t *testing.T) {
	s := begun()
	is := func(what string) func(*State) { return func(s *State) { s.Jobs[0].Bottleneck = what } }
	expect(t, s.after(2, is("source")))
	expect(t, s.after(28, nil))
	expect(t, s.after(2, nil), "bottleneck: the bottleneck is now the source")
	expect(t, s.after(60, nil))
	expect(t, s.after(2, is("disk")))
	expect(t, s.after(2, is("source")))
	expect(t, s.after(60, nil))
	expect(t, s.after(2, is("")))
	expect(t, s.after(60, is("consumer")))
	expect(t, s.after(30, func(s *State) { s.Jobs = append(s.Jobs, JobState{Number: 1, Name: "val"}) }), "job: job val came", "bottleneck: the bottleneck of job recipe is now the training loop")
}

func TestSource(t *testing.T) {
	s := begun()
	retried := func(n int64) func(*State) { return func(s *State) { s.Retries += n } }
	expect(t, s.after(2, retried(1)))
	expect(t, s.after(12, nil)) // a single retry is forgotten
	expect(t, s.after(2, retried(2)))
	expect(t, s.after(2, retried(1)), "source: the source fails: 3 reads were retried; lcache retries them")
	expect(t, s.after(2, retried(100)))
	expect(t, s.after(8, nil))
	expect(t, s.after(2, nil), "source: the source works again: 103 retries in 4.0 s")
	expect(t, s.after(60, nil))
	expect(t, s.after(2, retried(5)), "source: the source fails: 5 reads were retried; lcache retries them")
}

func TestList(t *testing.T) {
	var l List
	if got := l.All(); got == nil || len(got) != 0 {
		t.Errorf("an empty list is %v, want one that is not null in JSON", got)
	}
	for i := range Most + 10 {
		l.Add(New(start, Job, fmt.Sprint(i)))
	}
	got := l.All()
	if len(got) != Most || got[0].Text != "10" || got[Most-1].Text != fmt.Sprint(Most+9) {
		t.Errorf("%d events, from %q to %q", len(got), got[0].Text, got[len(got)-1].Text)
	}
	got[0].Text = "changed"
	if l.All()[0].Text == "changed" {
		t.Error("a caller can change the list")
	}
}
