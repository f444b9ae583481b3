package session

import (
	"fmt"
	"slices"
	"time"
)

// boundaryView is the input of decideBoundary. testdata/boundary.txt has a paragraph for each case.
type boundaryView struct {
	epoch     int                  // the trained epoch
	ranks     []rankState          // ranks seen so far, in any order
	published func(epoch int) bool // reports whether requests can read the order of an epoch
	silence   time.Duration        // a rank that was silent for this long may be gone
	patience  time.Duration        // time for the ranks inside the epoch, after the first rank has left it
}

// boundaryStep is the worker's next step.
type boundaryStep struct {
	to    int       // make the boundary before this epoch now; -1: make none
	until time.Time // with to -1: when to decide again; zero: when a rank is seen
	why   string
}

// decideBoundary decides whether the trained epoch ends now. It ends when every reporting rank has left it, or when
// the ranks inside have had enough time. A rank starts to report when it joins or sends its first request. It stops
// when a boundary finds it silent. Ranks that report to another server are not known.
func decideBoundary(now time.Time, v boundaryView) boundaryStep {
	next, inside, back := -1, 0, []int(nil)
	var first time.Time // when the first rank left the epoch
	for _, r := range v.ranks {
		switch {
		case r.at < 0:
		case r.at > v.epoch:
			if next < 0 || r.at < next {
				next = r.at
			}
			if first.IsZero() || r.leftAt.Before(first) {
				first = r.leftAt
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

// earliest returns the first epoch after the trained one that a rank was in. A short epoch with a published order may
// be over before the boundary at its beginning is made. That boundary still comes first, so that each order is drawn
// from the values of its own boundary.
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

// goBack decides about ranks that wait for orders of epochs before the trained one, because the run began again. all
// says that every reporting rank waits for such an order. Going back forgets the observed values. So it must not
// happen while another rank may still be inside the epoch.
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

// quietAt returns the time when all ranks in other epochs will have been silent for long enough; zero: no rank is in
// another epoch.
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
