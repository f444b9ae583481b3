package lister

import (
	"testing"
	"time"

	"lcache/internal/cluster"
	"lcache/internal/cluster/homes"
)

// seen is a machine with a listing's key.
func seen(name string, flags uint8, samples uint64) cluster.PeerView {
	return cluster.PeerView{Offer: cluster.Offer{Flags: flags, Threshold: homes.Threshold(samples)}, Member: name, Host: "host of " + name, Data: name + ":7746", State: cluster.PeerOK, Self: name == "b"}
}

// TestDecide tells what machine b does, second by second.
func TestDecide(t *testing.T) {
	began := time.Unix(1e9, 0)
	lost := seen("a", flagHas, 0)
	lost.State = cluster.PeerLost
	for name, story := range map[string][]struct {
		at   float64 // seconds
		seen []cluster.PeerView
		want string // list, wait, wait for or fetch from a machine
	}{
		"alone": {
			{0, nil, "wait"},
			{0.3, []cluster.PeerView{seen("b", flagWants, 0)}, "wait"},
			{1, []cluster.PeerView{seen("b", flagWants, 0)}, "list"},
		},
		"the lowest name lists": {
			{2, []cluster.PeerView{seen("c", flagWants, 0), seen("b", flagWants, 0)}, "list"},
			{2, []cluster.PeerView{seen("a", flagWants, 0), seen("b", flagWants, 0)}, "wait for a"},
		},
		"the lister makes progress, and then it does not": {
			{2, []cluster.PeerView{seen("a", flagWants, 0), seen("b", flagWants, 0)}, "wait for a"},
			{25, []cluster.PeerView{seen("a", flagWants, 10_000), seen("b", flagWants, 0)}, "wait for a"},
			{54, []cluster.PeerView{seen("a", flagWants, 10_000), seen("b", flagWants, 0)}, "wait for a"},
			{55, []cluster.PeerView{seen("a", flagWants, 10_000), seen("b", flagWants, 0)}, "list"},
		},
		"the lister is lost": {
			{2, []cluster.PeerView{seen("a", flagWants, 0), seen("b", flagWants, 0)}, "wait for a"},
			{3, []cluster.PeerView{seen("b", flagWants, 0)}, "list"},
		},
		"another one has it": {
			{0.1, []cluster.PeerView{seen("z", flagHas, 0), seen("b", flagWants, 0)}, "fetch from z"},
			{2, []cluster.PeerView{lost, seen("b", flagWants, 0)}, "list"},
		},
		"the newest listing wins, whoever has it": {
			{0.1, []cluster.PeerView{seen("a", flagHas, 1000), seen("z", flagHas, 1007), seen("c", flagHas, 1001), seen("b", flagWants, 0)}, "fetch from z"},
		},
		"more machines are expected": {
			{4.9, []cluster.PeerView{seen("b", flagWants, 0)}, "wait"},
			{5, []cluster.PeerView{seen("b", flagWants, 0)}, "list"},
		},
		"all expected machines are there": {
			{1, []cluster.PeerView{seen("b", flagWants, 0), seen("c", flagWants, 0), seen("d", flagWants, 0)}, "list"},
		},
	} {
		s := state{began: began, since: map[string]progress{}, bad: map[string]time.Time{}}
		if name == "more machines are expected" || name == "all expected machines are there" {
			s.expect = 3
		}
		for _, step := range story {
			d := s.decide(began.Add(time.Duration(step.at*float64(time.Second))), "b", step.seen)
			got := map[what]string{wait: "wait", fetch: "fetch from " + d.from.Member, list: "list"}[d.what]
			if d.what == wait && d.from.Member != "" {
				got += " for " + d.from.Member
			}
			if got != step.want {
				t.Errorf("%s, at %v s: %s, want %s", name, step.at, got, step.want)
			}
		}
	}
}

// TestBadListing: a machine whose listing could not be used is left alone for a while.
func TestBadListing(t *testing.T) {
	began := time.Unix(1e9, 0)
	s := state{began: began, since: map[string]progress{}, bad: map[string]time.Time{"a": began}}
	machines := []cluster.PeerView{seen("a", flagHas, 0), seen("b", flagWants, 0)}
	if d := s.decide(began.Add(5*time.Second), "b", machines); d.what != list {
		t.Errorf("after 5 s: %v", d)
	}
	if d := s.decide(began.Add(badTime), "b", machines); d.what != fetch {
		t.Errorf("after %v: %v", badTime, d)
	}
}
