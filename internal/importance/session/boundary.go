package session

import (
	"fmt"
	"slices"
	"time"
)

// boundaryView is the input of decideBoundary. Every case is a paragraph of testdata/boundary.txt.
type boundaryView struct {
	epoch     int                  // that is trained
	ranks     []rankState          // that were seen, in any order
	published func(epoch int) bool // requests can read its order
	silence   time.Duration        // after which a rank that was not seen may be gone
	patience  time.Duration        // for the ranks inside the epoch, from when the first rank has left it
}

// boundaryStep is the worker's next step.
type boundaryStep struct {
	to    int       // the boundary before this epoch is made now; -1: none is
	until time.Time // with to -1: when to decide again; zero: when a rank is seen
	why   string
}

// decideBoundary decides whether the trained epoch ends now. It ends when every reporting rank has left it, or when the ranks inside have had enough time. A rank reports from when it joins or first requests
// something until a boundary finds it silent; ranks that report to another server are not known here.
func decideBoundary(now time.Time, v boundaryView) boundaryStep {
	next, inside, back := -1, 0, []int(nil)
	var first time.Time // a rank left the epoch
	for _, r := range v.ranks {
		switch {
		case r.at < 0:
		case r.at > v.epoch:
			if next < 0 || r.at < next {
				next = r.at
			}
			if first.IsZero() || r.came.Before(first) {
				first = r.came
			}
		case r.at < v.epoch && !v.published(r.at):
			back = append(back, r.at)
		default:
			inside++
		}
	}
	due := first.Add(v.patience)
	switch {
	case len(back) > 0:
		return v.goBack(now, back, next < 0 && inside == 0)
	case next < 0:
		return boundaryStep{to: -1, why: "no rank has left the epoch"}
	case inside == 0:
		return boundaryStep{to: v.earliest(next), why: "every reporting rank has left the epoch"}
	case !now.Before(due):
		return boundaryStep{to: v.earliest(next), why: "the ranks inside the epoch are late"}
	}
	return boundaryStep{to: -1, until: due, why: "ranks are inside the epoch"}
}

// earliest returns the first epoch that a rank was in after the trained one. A short epoch whose order was published may be over before the boundary that it begins with is made. That boundary comes first all the
// same, so that each order is drawn from the values that it is to be drawn from.
func (v *boundaryView) earliest(next int) int {
	for _, r := range v.ranks {
		for _, epoch := range r.left {
			if epoch > v.epoch {
				next = min(next, epoch)
			}
		}
	}
	return next
}

// goBack decides about ranks that wait for orders of epochs before the trained one: a run that has begun again. all says that every reporting rank does. The values that were observed will be forgotten, so
// that does not happen while another rank may still be inside the epoch.
func (v *boundaryView) goBack(now time.Time, back []int, all bool) boundaryStep {
	slices.Sort(back)
	var first time.Time
	for k, epoch := range slices.Compact(back) {
		quiet := v.quietAt(epoch)
		if !now.Before(quiet) {
			return boundaryStep{to: epoch, why: "ranks went back to it, and no other rank was seen lately"}
		}
		if k == 0 || quiet.Before(first) {
			first = quiet
		}
	}
	if all {
		return boundaryStep{to: back[0], why: "every reporting rank went back"}
	}
	return boundaryStep{to: -1, until: first, why: "ranks went back, and others may still train"}
}

// quietAt returns when the ranks outside an epoch will have been silent for long enough; zero: there are none.
func (v *boundaryView) quietAt(epoch int) (quiet time.Time) {
	for _, r := range v.ranks {
		if end := r.seen.Add(v.silence); r.at >= 0 && r.at != epoch && end.After(quiet) {
			quiet = end
		}
	}
	return quiet
}

func (s boundaryStep) String() string {
	if s.to >= 0 {
		return fmt.Sprintf("boundary before epoch %d: %s", s.to, s.why)
	}
	return "wait: " + s.why
}
