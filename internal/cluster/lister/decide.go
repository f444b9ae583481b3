package lister

import (
	"time"

	"lcache/internal/cluster"
)

// Flags of an offer for a listing. They follow those of package cluster.
const (
	flagWants uint8 = 1 << (iota + 4) // it wants the listing, and can list the source itself
	flagHas                           // it has the listing. Its threshold is when the source was listed, in seconds since 1970
)

// badTime is how long a machine whose listing could not be used is left alone.
const badTime = 10 * time.Second

// state is what a machine remembers while it waits for a listing.
type state struct {
	expect int // machines; 0: unknown
	began  time.Time
	since  map[string]progress  // by member
	bad    map[string]time.Time // members whose listing could not be used, and when
}

// progress is a machine's last progress, and when it was first seen.
type progress struct {
	samples uint64
	at      time.Time
}

type what int

const (
	wait  what = iota // for from, if it has a host
	fetch             // from from
	list
)

// decision is what a machine does next.
type decision struct {
	what what
	from cluster.PeerView
}

// decide returns what the machine self does at a time, from the machines that are seen with the listing's key, itself among them.
func (s *state) decide(now time.Time, self string, seen []cluster.PeerView) decision {
	first, newest, wanting := cluster.PeerView{}, cluster.PeerView{}, 0
	for _, p := range seen {
		if p.State != cluster.PeerOK {
			continue
		}
		if p.Flags&flagHas != 0 && !p.Self {
			if p.Data != "" && now.Sub(s.bad[p.Member]) >= badTime && (newest.Member == "" || p.Threshold > newest.Threshold) {
				newest = p
			}
			continue
		}
		if p.Flags&flagWants == 0 {
			continue
		}
		wanting++
		last, known := s.since[p.Member]
		if !known || last.samples != uint64(p.Threshold) {
			last = progress{uint64(p.Threshold), now}
			s.since[p.Member] = last
		}
		stands := !p.Self && now.Sub(last.at) >= Patience // it had its turn, if it was the first
		if !stands && (first.Member == "" || p.Member < first.Member) {
			first = p
		}
	}
	since := now.Sub(s.began)
	switch {
	case newest.Member != "":
		return decision{fetch, newest}
	case wanting == 0: // this machine's own offer is not in the view yet
		return decision{what: wait}
	case s.expect > wanting && since < gather, since < settle:
		return decision{what: wait}
	case first.Member == self:
		return decision{what: list}
	}
	return decision{wait, first}
}
