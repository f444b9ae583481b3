package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"lcache/engine/internal/events"
	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

// lookForEvents is the time between two looks.
const lookForEvents = 2 * time.Second

// watchEvents adds events to the status document until the engine closes.
func (e *Engine) watchEvents() {
	e.events.Add(events.New(e.started, events.Started, fmt.Sprintf("the server started: lcache %s, pid %d", e.opts.Version, os.Getpid())))
	every := time.NewTicker(e.opts.LookForEvents)
	defer every.Stop()
	var w events.Watcher
	for {
		for _, event := range w.Look(e.eventState()) {
			e.events.Add(event)
			e.cache.Logger.LogAttrs(context.Background(), slog.LevelInfo, event.Text, slog.String("event", event.Kind))
		}
		select {
		case <-every.C:
		case <-e.ctx.Done():
			return
		}
	}
}

// eventState returns what events are made of.
func (e *Engine) eventState() events.State {
	s := events.State{Devices: e.devices(), Retries: e.cache.Source.Retries()}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.At = e.now()
	s.Layout, s.Reason = e.layoutNow()
	for _, j := range e.sorted() {
		if j.token == "" && !e.isUsed(j) {
			continue
		}
		name, ok := usage.JobName(j.token)
		if !ok {
			name = "of the server's recipe"
		}
		s.Jobs = append(s.Jobs, events.JobState{Number: j.number, Name: name, Bottleneck: j.counts.Bottleneck(e.totals(j.number))})
	}
	return s
}

// waits returns how long requests took to be answered.
func (e *Engine) waits() *status.Waits {
	w := e.deliver.Stats.Waits.Read()
	return &status.Waits{Count: w.Count, SumSeconds: w.SumSeconds, Bounds: w.Bounds, Cumulative: w.Classic, First: w.First, Native: w.Native}
}
