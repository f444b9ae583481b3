package prefetch

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Times and bounds of slow peers.
const (
	lookEvery = 500 * time.Millisecond // between two looks
	lookBack  = 2 * time.Second        // what was due in this time is compared
	behindFor = 6 * time.Second        // a peer is slow when it has been behind this long: machines whose disks are the limit wait for one another by turns
	forgive   = 10 * time.Second       // a slow peer must keep up this long before it is asked for more
	mostBusy  = 0.9                    // part of the time with something due of a slow peer, above which others wait for it
	mostSlow  = 5                      // the largest level: one sample in 32 is requested
	mostVia   = 0.1                    // part of what a peer brought, above which the source is its limit
)

// A supply is what one supplier brought so far, in what time with something due of it, and what is due of it now.
type supply struct {
	brought, due int64 // bytes
	viaSource    int64 // of brought: what a peer had to read from the source
	busy         time.Duration
}

// slowPeers decides which peers are slow. It is pure: it changes by look only, and the caller brings the time.
//
// A supplier's share is what it brought of what was due in the last lookBack. A peer whose share, and whose rate while something was due, stay below half of
// the medians is slow: half of what is due of it is read from the source, and half of the rest as long as others wait for it, which is if something is due
// of it nearly all the time. Its share alone says little: every peer that is a bit slower than the others has all of the lookahead due at last. Where all
// are slow none is. Two more peers are not slow, because the source would not help: one that brings a larger share than the source, and one that has read
// its samples from the source.
type slowPeers struct {
	of     map[string]*standing
	own    history // this machine's log
	source history
}

// standing is how a peer stands.
type standing struct {
	history
	via   bool      // the source was its limit when it last brought something
	level int       // 0: it is not slow. Of 2 to the power of level samples that are due of it, one is requested
	under time.Time // since when its share is too small; zero: it is not
	over  time.Time // since when its share is large enough, while it is slow; zero: it is not
}

// history is what a supplier had brought at the last looks.
type history []looked

type looked struct {
	at time.Time
	supply
}

// progress is what a supplier did in the last lookBack.
type progress struct {
	share float64 // brought of what was due
	rate  float64 // bytes a second while something was due
	busy  float64 // part of the time with something due
	via   float64 // part of the brought bytes that the peer had read from the source
}

// progress takes what the supplier brought until now. ok is false if nothing was due.
func (h *history) progress(now time.Time, s supply) (p progress, ok bool) {
	for len(*h) > 1 && !(*h)[1].at.After(now.Add(-lookBack)) {
		*h = (*h)[1:]
	}
	before := s
	if len(*h) > 0 {
		before = (*h)[0].supply
	}
	*h = append(*h, looked{now, s})
	brought, busy := float64(s.brought-before.brought), (s.busy - before.busy).Seconds()
	if brought+float64(s.due) <= 0 || busy <= 0 {
		return p, false
	}
	return progress{brought / (brought + float64(s.due)), brought / busy, busy / now.Sub((*h)[0].at).Seconds(), float64(s.viaSource-before.viaSource) / max(brought, 1)}, true
}

// look takes what the suppliers brought until now. It returns the peers that are slow from now on, or no longer.
func (s *slowPeers) look(now time.Time, peers map[string]supply, own, source supply) (changed []string) {
	if s.of == nil {
		s.of = map[string]*standing{}
	}
	maps.DeleteFunc(s.of, func(name string, p *standing) bool {
		_, isKnown := peers[name]
		if !isKnown && p.level > 0 {
			changed = append(changed, name)
		}
		return !isKnown
	})
	var shares, rates []float64
	seen := map[string]progress{}
	note := func(p progress) { shares, rates = append(shares, p.share), append(rates, p.rate) }
	if p, ok := s.own.progress(now, own); ok {
		note(p)
	}
	for name, one := range peers {
		if s.of[name] == nil {
			s.of[name] = &standing{}
		}
		if p, ok := s.of[name].progress(now, one); ok {
			seen[name] = p
			note(p)
			if p.rate > 0 {
				s.of[name].via = p.via > mostVia
			}
		}
	}
	fromSource, isUsed := s.source.progress(now, source)
	share, rate := median(shares)/2, median(rates)/2
	for name, p := range s.of {
		its, isDue := seen[name]
		was := p.level
		isHeldUp := its.share < share || p.level > 0 && its.busy > mostBusy
		p.judge(now, isDue && len(shares) > 1 && isHeldUp && !p.via && its.rate < rate && (!isUsed || its.share < fromSource.share))
		if (was > 0) != (p.level > 0) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

// judge changes the level of a peer, if its share has been too small, or large enough, for long enough.
func (p *standing) judge(now time.Time, isUnder bool) {
	switch {
	case isUnder:
		p.over = time.Time{}
		if p.under.IsZero() {
			p.under = now
		} else if behind := now.Sub(p.under); behind >= behindFor || p.level > 0 && behind >= lookBack {
			p.level, p.under = min(p.level+1, mostSlow), now
		}
	case p.level == 0:
		p.under = time.Time{}
	default:
		p.under = time.Time{}
		if p.over.IsZero() {
			p.over = now
		} else if now.Sub(p.over) >= forgive {
			p.level, p.over = p.level-1, now
		}
	}
}

// level returns the level of a peer.
func (s *slowPeers) level(peer string) int {
	if p := s.of[peer]; p != nil {
		return p.level
	}
	return 0
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.SortFunc(all, cmp.Compare)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}
