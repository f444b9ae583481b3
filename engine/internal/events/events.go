// Package events notices what happens to a server: a device is quarantined, a job comes or goes, the layout or the bottleneck changes, the source fails.
//
// A Watcher compares one State with the one before and returns the differences as events, each with one sentence. It does no I/O and reads no clock. A List
// keeps the latest events for the status document. A Watcher is for one goroutine; a List may be used concurrently.
package events

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"lcache/internal/serve/status"
	"lcache/internal/units"
	"lcache/internal/usage"
	"lcache/internal/verdict"
)

// Kinds of events.
const (
	Started    = "started"
	Device     = "device"
	Layout     = "layout"
	Job        = "job"
	Bottleneck = "bottleneck"
	Source     = "source"
)

// Most is the number of events that a List keeps.
const Most = 64

// A List keeps the latest events. The zero value is ready for use.
type List struct {
	mu   sync.Mutex // guards the field that follows
	last []status.Event
}

// Add appends an event, and drops the oldest one if there are Most.
func (l *List) Add(e status.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == Most {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, e)
}

// All returns the events, the oldest one first.
func (l *List) All() []status.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]status.Event{}, l.last...)
}

// New returns an event. Its text is one sentence for people.
func New(at time.Time, kind, text string) status.Event {
	return status.Event{Time: at.UTC().Format(time.RFC3339), Kind: kind, Text: text}
}

// A State is one input of a Watcher. Jobs has no ended jobs.
type State struct {
	At             time.Time
	Devices        []status.Device
	Layout, Reason string // the present layout
	Jobs           []JobState
	Retries        int64 // of reads of the source, since the start
}

// JobState is the state of one job.
type JobState struct {
	Number     int
	Name       string // for people
	Bottleneck string // source, disk, consumer, decode; "": not known
}

// A source fails when failingRetries reads were retried without a pause of quietSource.
const (
	failingRetries = 3
	quietSource    = 10 * time.Second
	// steadyBottleneck is how long a bottleneck must last before it is an event: between two of them it may go back and forth.
	steadyBottleneck = 30 * time.Second
)

// A Watcher compares states.
type Watcher struct {
	before *State
	jobs   map[int]*jobHistory
	source sourceHistory
}

type jobHistory struct {
	known string // the bottleneck of the last event
	now   string
	since time.Time // of now
}

type sourceHistory struct {
	first, last time.Time // of the retries without a quiet time between them; zero: none
	retries     int64
	isFailing   bool
	seen        int64
}

// Look returns the events since the last State. The first State is compared with a server that has no jobs and whose devices are all normal.
func (w *Watcher) Look(now State) (list []status.Event) {
	add := func(kind, format string, args ...any) {
		list = append(list, New(now.At, kind, fmt.Sprintf(format, args...)))
	}
	if w.before == nil {
		w.before, w.jobs = &State{Layout: now.Layout}, map[int]*jobHistory{}
		for range now.Devices {
			w.before.Devices = append(w.before.Devices, status.Device{State: "normal"})
		}
	}
	w.devices(now, add)
	if now.Layout != w.before.Layout {
		add(Layout, "the layout changed from %s to %s: %s", w.before.Layout, now.Layout, now.Reason)
	}
	w.comings(now, add)
	w.bottlenecks(now, add)
	w.sourceFails(now, add)
	w.before = &now
	return list
}

type adder func(kind, format string, args ...any)

func (w *Watcher) devices(now State, add adder) {
	for i, d := range now.Devices {
		if i >= len(w.before.Devices) || d.State == w.before.Devices[i].State {
			continue
		}
		dir, because := usage.Name(d.Dir), ""
		if d.LastError != "" {
			because = " (" + usage.Message(d.LastError) + ")"
		}
		switch d.State {
		case "normal":
			add(Device, "%s works again", dir)
		case "read-only":
			add(Device, "%s became read-only%s: it takes no new blocks", dir, because)
		default:
			add(Device, "%s was quarantined%s: its samples come from the source", dir, because)
		}
	}
}

func (w *Watcher) comings(now State, add adder) {
	for _, j := range now.Jobs {
		if w.jobs[j.Number] == nil {
			w.jobs[j.Number] = &jobHistory{}
			add(Job, "job %s came", j.Name)
		}
	}
	for _, j := range w.before.Jobs {
		if !slices.ContainsFunc(now.Jobs, func(n JobState) bool { return n.Number == j.Number }) {
			delete(w.jobs, j.Number)
			add(Job, "job %s went", j.Name)
		}
	}
}

func (w *Watcher) bottlenecks(now State, add adder) {
	for _, j := range now.Jobs {
		h := w.jobs[j.Number]
		if j.Bottleneck != h.now {
			h.now, h.since = j.Bottleneck, now.At
		}
		if h.now == "" || h.now == h.known || now.At.Sub(h.since) < steadyBottleneck {
			continue
		}
		h.known = h.now
		of := ""
		if len(now.Jobs) > 1 {
			of = " of job " + j.Name
		}
		add(Bottleneck, "the bottleneck%s is now %s", of, verdict.Called(h.now))
	}
}

// sourceFails notices that reads of the source fail again and again, and the end of that.
func (w *Watcher) sourceFails(now State, add adder) {
	s := &w.source
	more := now.Retries - s.seen
	s.seen = now.Retries
	switch {
	case more > 0:
		if s.last.IsZero() {
			s.first, s.retries = now.At, 0
		}
		s.last, s.retries = now.At, s.retries+more
		if !s.isFailing && s.retries >= failingRetries {
			s.isFailing = true
			add(Source, "the source fails: %s; lcache retries them", units.Plural(s.retries, "read was retried", "reads were retried"))
		}
	case !s.last.IsZero() && now.At.Sub(s.last) >= quietSource:
		if s.isFailing {
			add(Source, "the source works again: %s in %s", units.Plural(s.retries, "retry", "retries"), units.Duration(max(s.last.Sub(s.first).Seconds(), 1)))
		}
		s.isFailing, s.first, s.last = false, time.Time{}, time.Time{}
	}
}
