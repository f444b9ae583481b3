package prefetch

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// TestSlowPeers tells what three suppliers bring, in MB/s, of 100 MB/s that are due of each, and which peers are slow after that.
func TestSlowPeers(t *testing.T) {
	type step struct {
		until  float64            // seconds
		rates  map[string]float64 // of peers, and "own" and "source"
		levels map[string]int     // afterwards
	}
	fine := map[string]float64{"a": 100, "b": 100, "own": 100}
	for name, story := range map[string][]step{
		"all keep up": {{20, fine, nil}},
		"one at a tenth": {
			{2, map[string]float64{"a": 100, "b": 10, "own": 100}, nil},
			{5.5, map[string]float64{"a": 100, "b": 10, "own": 100}, nil},
			{7.5, map[string]float64{"a": 100, "b": 10, "own": 100}, map[string]int{"b": 1}},
			{9.5, map[string]float64{"a": 100, "b": 10, "own": 100}, map[string]int{"b": 2}},
			{30, map[string]float64{"a": 100, "b": 10, "own": 100}, map[string]int{"b": 5}},
		},
		"it recovers": {
			{10, map[string]float64{"a": 100, "b": 10, "own": 100}, map[string]int{"b": 2}},
			{19, map[string]float64{"a": 100, "b": 200, "own": 100}, map[string]int{"b": 2}},
			{24, map[string]float64{"a": 100, "b": 100, "own": 100}, map[string]int{"b": 1}},
			{36, fine, nil},
		},
		"all at a tenth":            {{30, map[string]float64{"a": 10, "b": 10, "own": 10}, nil}},
		"all but this machine":      {{30, map[string]float64{"a": 10, "b": 10, "own": 100}, nil}},
		"a bit slower":              {{30, map[string]float64{"a": 100, "b": 60, "own": 100}, nil}},
		"the only peer":             {{8, map[string]float64{"a": 3, "own": 100}, map[string]int{"a": 1}}},
		"the only peer, no own log": {{30, map[string]float64{"a": 3}, nil}},
		"the source is slower":      {{30, map[string]float64{"a": 100, "b": 10, "own": 100, "source": 1}, nil}},
		"the source is its limit":   {{30, map[string]float64{"a": 100, "b": 10, "own": 100, "b via": 1}, nil}},
		"by turns": {
			{5, map[string]float64{"a": 100, "b": 10, "own": 100}, nil},
			{10, map[string]float64{"a": 10, "b": 100, "own": 100}, nil},
			{15, map[string]float64{"a": 100, "b": 10, "own": 100}, nil},
		},
		"short pauses": {
			{1, map[string]float64{"a": 100, "b": 0, "own": 100}, nil},
			{1.5, map[string]float64{"a": 100, "b": 250, "own": 100}, nil},
			{2.5, map[string]float64{"a": 100, "b": 0, "own": 100}, nil},
			{4, map[string]float64{"a": 100, "b": 170, "own": 100}, nil},
		},
	} {
		var s slowPeers
		now := time.Unix(1e9, 0)
		began := now
		had := map[string]*supply{}
		slow := map[string]bool{}
		for _, step := range story {
			for ; now.Before(began.Add(time.Duration(step.until * float64(time.Second)))); now = now.Add(lookEvery) {
				peers, others := map[string]supply{}, map[string]supply{}
				for who, rate := range step.rates {
					if strings.HasSuffix(who, " via") {
						continue
					}
					if had[who] == nil {
						had[who] = &supply{}
					}
					one := had[who]
					brings := min(rate*lookEvery.Seconds(), float64(one.due)+100*lookEvery.Seconds())
					one.brought += int64(brings)
					if step.rates[who+" via"] > 0 {
						one.viaSource = one.brought
					}
					one.busy += time.Duration(brings / max(rate, 1) * float64(time.Second))
					if rate == 0 {
						one.busy += lookEvery
					}
					one.due = min(max(one.due+int64(100*lookEvery.Seconds()-brings), 0), 400) // memory bounds what is requested
					if who == "own" || who == "source" {
						others[who] = *one
					} else {
						peers[who] = *one
					}
				}
				for _, who := range s.look(now, peers, others["own"], others["source"]) {
					slow[who] = !slow[who]
				}
			}
			got := map[string]int{}
			for who := range step.rates {
				if l := s.level(who); l > 0 {
					got[who] = l
				}
				if slow[who] != (s.level(who) > 0) {
					t.Errorf("%s, at %v s: %s has level %d, and the changes say slow: %v", name, step.until, who, s.level(who), slow[who])
				}
			}
			if len(got)+len(step.levels) > 0 && !maps.Equal(got, step.levels) {
				t.Errorf("%s, at %v s: levels %v, want %v", name, step.until, got, step.levels)
			}
		}
	}
}

// TestSlowPeerLeaves: a peer that is not there any longer is not slow.
func TestSlowPeerLeaves(t *testing.T) {
	var s slowPeers
	now := time.Unix(1e9, 0)
	both := map[string]supply{"a": {}, "b": {}}
	for i := range 20 {
		both["a"], both["b"] = supply{brought: 1, due: 100, busy: time.Duration(i) * lookEvery}, supply{brought: int64(100 * i), busy: time.Duration(i) * lookEvery}
		s.look(now, both, supply{}, supply{})
		now = now.Add(lookEvery)
	}
	if s.level("a") == 0 {
		t.Fatal("a is not slow: the test shows nothing")
	}
	delete(both, "a")
	if changed := s.look(now, both, supply{}, supply{}); len(changed) != 1 || changed[0] != "a" || s.level("a") != 0 {
		t.Errorf("after it has left: %v, level %d", changed, s.level("a"))
	}
}
