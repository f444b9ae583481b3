package monitor

import (
	"time"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
)

// The history of a server: one point every sampleTime, for an hour.
const (
	sampleTime = 5 * time.Second
	mostPoints = int(time.Hour / sampleTime)
)

// A point has the rates of one server over the time before it.
type point struct {
	Time                             float64  // Unix seconds
	Delivered, Read, Written, Source float64  // bytes a second
	Waited                           *float64 // share of the time in which the training loop waited, or requests if the loop reports nothing; nil: nothing is read
}

// history has the points of one server. It is not for concurrent use.
type history struct {
	points []point         // the oldest first
	before status.Document // of the last point, or of the first look
	at     time.Time       // of before; zero: no look yet
	rated  status.Document // of the point before the last one: rates that people read are over at least sampleTime
}

// add looks at a document. From the second one on, it adds a point.
func (h *history) add(now status.Document, at time.Time) {
	if h.at.IsZero() || now.UptimeSeconds < h.before.UptimeSeconds { // the first look, or another server in its place
		h.rated, h.before, h.at = now, now, at
		return
	}
	v := overview.View{Before: h.before, Now: now, Seconds: now.UptimeSeconds - h.before.UptimeSeconds}
	if v.Seconds <= 0 {
		return
	}
	was, is := h.before.Totals, now.Totals
	rate := func(was, is int64) float64 { return float64(max(is-was, 0)) / v.Seconds }
	p := point{Time: float64(at.UnixMilli()) / 1000, Delivered: rate(was.BytesDelivered, is.BytesDelivered), Read: rate(was.LogReadBytes, is.LogReadBytes),
		Written: rate(was.LogWriteBytes, is.LogWriteBytes), Source: rate(was.SourceBytes, is.SourceBytes)}
	if live, _ := v.Jobs(); len(live) > 0 && overview.Activity(v.Earlier(live[0]), live[0]) != overview.Resting {
		if _, wait, of := v.Waited(v.Earlier(live[0]), live[0]); of > 0 {
			share := min(max(wait/of, 0), 1)
			p.Waited = &share
		}
	}
	if len(h.points) == mostPoints {
		h.points = append(h.points[:0], h.points[1:]...)
	}
	h.points = append(h.points, p)
	h.rated, h.before, h.at = h.before, now, at
}

// view is the server now, with rates since the point before the last one.
func (h *history) view(now status.Document) overview.View {
	v := overview.View{Before: h.rated, Now: now, Seconds: now.UptimeSeconds - h.rated.UptimeSeconds}
	if h.at.IsZero() || v.Seconds < 0 {
		v.Before, v.Seconds = now, 0
	}
	return v
}

// columns returns the points as the page draws them: times, then each line.
func columns(points []point) [][]*float64 {
	c := make([][]*float64, 6)
	for i := range points {
		p := &points[i]
		for k, v := range []*float64{&p.Time, &p.Delivered, &p.Read, &p.Written, &p.Source, p.Waited} {
			c[k] = append(c[k], v)
		}
	}
	for k := range c {
		if c[k] == nil {
			c[k] = []*float64{}
		}
	}
	return c
}
