package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/sample"
)

const class = `{"method":"spider","substitute":"class","batch_size":16,"world_size":%d,"cache":1900000,"seed":5,"policy":%q,"params":{"ratio":[%v,%v],"m":2,"max_uses":%d}}`

// likeness is a synthetic embedding space: samples of a label form clusters, and every fifth sample is between two classes.
type likeness struct {
	labels []int32
	near   map[sample.Index][]sample.Index
	hard   func(sample.Index) bool // samples of great value that nodes list all the same; nil: none
}

func newLikeness(e *Engine) *likeness {
	l := &likeness{labels: e.cache.Manifest.Labels(), near: map[sample.Index][]sample.Index{}}
	cluster := map[[2]int32][]sample.Index{}
	for i, label := range l.labels {
		if i%5 != 0 {
			key := [2]int32{label, int32(i / 5 % 3)}
			cluster[key] = append(cluster[key], sample.Index(i))
		}
	}
	for _, members := range cluster {
		for _, i := range members {
			for _, other := range members {
				if other != i && len(l.near[i]) < 100 {
					l.near[i] = append(l.near[i], other)
				}
			}
		}
	}
	return l
}

// observation is a trainer's report about a batch. The spread of values falls from epoch to epoch.
func (l *likeness) observation(rank, epoch, batch int, indices []sample.Index) score.Observation {
	o := score.Observation{Kind: score.Counts, Rank: uint16(rank), Epoch: uint32(epoch), Batch: uint32(batch), Index: indices, Node: sample.None}
	for _, i := range indices {
		near := l.near[i]
		same, other := uint16(len(near)), uint16(0)
		switch {
		case l.hard != nil && l.hard(i):
			same, other = 0, 500
		case len(near) == 0:
			other = uint16(300 / (epoch + 1))
		}
		o.Same, o.Other = append(o.Same, same), append(o.Other, other)
		if len(near) > len(o.Neighbours) {
			o.Node, o.Neighbours = i, near
		}
	}
	return o
}

// classSteps is losing.steps for a method that observes neighbours. It checks the law, and returns how many samples were replaced.
func (l losing) classSteps(t testing.TB, like *likeness, epoch, maxUses int) (served servedEpoch, n int) {
	t.Helper()
	served = l.stepsObserved(t, epoch, 0, like.observation)
	uses := map[sample.Index]int{}
	for rank := range served.served {
		for b, batch := range served.served[rank] {
			asked := served.requested[rank][b]
			for k, i := range batch {
				if i == asked[k] {
					continue
				}
				n++
				uses[i]++
				if !slices.Contains(like.near[i], asked[k]) || like.labels[i] != like.labels[asked[k]] || slices.Contains(asked, i) || slices.Contains(batch[:k], i) || maxUses > 0 && uses[i] > maxUses {
					t.Errorf("epoch %d rank %d batch %d: %d stands in for %d, for the %dth time; batch %v for %v", epoch, rank, b, i, asked[k], uses[i], batch, asked)
				}
			}
		}
	}
	return served, n
}

// areNotReplaced checks that no other sample was served for the given ones.
func (s servedEpoch) areNotReplaced(t testing.TB, epoch int, are func(sample.Index) bool) {
	t.Helper()
	asked := 0
	for rank := range s.served {
		for b, batch := range s.served[rank] {
			for k, id := range s.requested[rank][b] {
				if !are(id) {
					continue
				}
				if asked++; batch[k] != id {
					t.Errorf("epoch %d rank %d batch %d: %d stands in for %d, an H-sample", epoch, rank, b, batch[k], id)
				}
			}
		}
	}
	if epoch > 0 && asked == 0 {
		t.Errorf("epoch %d asks for no H-sample", epoch)
	}
}

// settleNodes waits until all found nodes are in memory, or left out.
func (e *Engine) settleNodes(t *testing.T, p *important) {
	t.Helper()
	waitFor(t, "nodes are read", func() bool {
		_, waiting := p.high.Nodes()
		return waiting == 0
	})
}

// TestClassServes: in each layout and world and with two policies, nodes are served for their neighbours by the law, from memory. Counters and digests show it, and bytes stay within the cache.
func TestClassServes(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		for k, policy := range []string{"next-use", "paper"} {
			world := 1 + 2*k
			d, o := small(t, schedule.Job{World: world})
			o.Layout, o.Patience, o.LateEpoch = layout, 20*time.Second, time.Minute
			e := open(t, o)
			l, like := losing{d: d, e: e, world: world}, newLikeness(e)
			like.hard = func(i sample.Index) bool { return i%30 == 1 }
			for rank := range world {
				l.ask(t, rank, fmt.Sprintf(class, world, policy, 0.7, 0.7, 8))
			}
			p := e.owner.importance.Load()
			total := 0
			for epoch := range 6 {
				l.begin(t, epoch)
				high := e.highNow(t, 0)
				served, n := l.classSteps(t, like, epoch, 8)
				served.areNotReplaced(t, epoch, high)
				e.settleNodes(t, p)
				if epoch == 0 && n > 0 || epoch >= 3 && n < 10 {
					t.Errorf("%s, epoch %d: %d substitutes", policy, epoch, n)
				}
				total += n
				if taken := p.high.Held().Taken(); taken > p.config.Cache {
					t.Errorf("%s: %d bytes of %d", policy, taken, p.config.Cache)
				}
			}
			s := e.Status().Jobs[0]
			closeEngine(t, e)
			i := s.Importance
			if i.Substitute != "class" || i.Policy != policy || int(i.Substituted) != total || i.SubstitutedMax < 2 || i.SubstitutedMax > 8 || i.HomophilyHits == 0 || i.HHits == 0 || i.LHits != 0 || i.Ratio != 0.7 {
				t.Errorf("%s: %d substitutes, status %+v", policy, total, i)
			}
			if sum := i.HHits + i.LHits + i.HomophilyHits + i.Substituted + i.LogHits + i.SourceMisses; i.Requested != sum {
				t.Errorf("%d requested, the parts are %d", i.Requested, sum)
			}
			if s.Divergences != 0 {
				t.Errorf("%d divergences", s.Divergences)
			}
		}
	})
}

// TestClassElastic: the ratio falls as the spread of values falls, and memory follows it: nodes get the remaining memory. A job with an unknown number of epochs keeps its ratio.
func TestClassElastic(t *testing.T) {
	for _, epochs := range []int{8, 0} {
		d, o := small(t, schedule.Job{World: 1, Epochs: epochs})
		o.Layout, o.Patience, o.LateEpoch = cache.LayoutStatic, 20*time.Second, time.Minute
		e := open(t, o)
		l, like := losing{d: d, e: e, world: 1}, newLikeness(e)
		l.ask(t, 0, fmt.Sprintf(class, 1, "next-use", 0.9, 0.5, 8))
		p := e.owner.importance.Load()
		last := 1.0
		for epoch := range 7 {
			l.begin(t, epoch)
			ratio := e.Status().Jobs[0].Importance.Ratio
			memory := p.high.Ratio()
			if ratio > last || ratio > 0.9 || ratio < 0.5 || memory != ratio {
				t.Errorf("epoch %d of %d: the ratio is %v after %v, and memory has %v", epoch, epochs, ratio, last, memory)
			}
			last = ratio
			l.classSteps(t, like, epoch, 8)
			accuracy := 0.5 // which gains nothing
			e.EndEpoch(0, 0, score.Progress{Epoch: epoch, Accuracy: &accuracy}, Unsent{})
		}
		if (last < 0.8) != (epochs > 0) {
			t.Errorf("%d epochs: the ratio ends at %v", epochs, last)
		}
		closeEngine(t, e)
	}
}

// TestNodesThatAreGone: a node that can't be read does not enter, and nothing waits for it.
func TestNodesThatAreGone(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Layout, o.Patience, o.LateEpoch = cache.LayoutStatic, 20*time.Second, time.Minute
	source, goes := vanishing()
	o.Source = source
	e := open(t, o)
	defer closeEngine(t, e)
	l, like := losing{d: d, e: e, world: 1}, newLikeness(e)
	l.ask(t, 0, strings.Replace(fmt.Sprintf(class, 1, "next-use", 0.5, 0.5, 8), "1900000", "200000", 1))
	l.begin(t, 0)
	p := e.owner.importance.Load()
	goes()
	for i := range d.bytes { // as if every block were damaged
		e.cache.Locations.Set(sample.Index(i), 0)
	}
	for b := range 40 {
		e.Observe(0, like.observation(0, 0, b, []sample.Index{sample.Index(5*b + 1), sample.Index(5*b + 2)}))
	}
	waitFor(t, "the observations are noted", func() bool { return e.Status().Jobs[0].Importance.Observations == 80 })
	e.settleNodes(t, p)
	if nodes, _ := p.high.Nodes(); nodes > 0 {
		t.Errorf("%d nodes that can't be read", nodes)
	}
}

// TestClassRestarts: a restarted server serves the remainder of an epoch as planned. Its nodes are lost: the next epoch has no substitutes, and later ones have them again.
func TestClassRestarts(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Layout, o.Patience, o.LateEpoch = cache.LayoutStatic, 20*time.Second, time.Minute
	text := fmt.Sprintf(class, 1, "paper", 0.7, 0.7, 8)
	e := open(t, o)
	l, like := losing{d: d, e: e, world: 1}, newLikeness(e)
	l.ask(t, 0, text)
	for epoch := range 3 {
		l.begin(t, epoch)
		l.classSteps(t, like, epoch, 8)
		e.settleNodes(t, e.owner.importance.Load())
	}
	l.begin(t, 3)
	want, n := l.classSteps(t, like, 3, 8)
	closeEngine(t, e)
	if n < 20 {
		t.Errorf("%d substitutes", n)
	}
	e = open(t, o)
	defer closeEngine(t, e)
	l.e = e
	l.ask(t, 0, text)
	for epoch := 3; epoch < 7; epoch++ {
		l.begin(t, epoch)
		got, n := l.classSteps(t, like, epoch, 8)
		e.settleNodes(t, e.owner.importance.Load())
		if epoch == 3 && !slices.EqualFunc(got.served[0], want.served[0], slices.Equal) {
			t.Error("the epoch is served otherwise after a restart")
		}
		if epoch > 4 && n < 20 {
			t.Errorf("epoch %d: %d substitutes", epoch, n)
		}
	}
}

// TestOtherEmbeddings: when a trainer reports another length of its embeddings, the nodes, their lists and their bytes are dropped.
func TestOtherEmbeddings(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Layout, o.Patience, o.LateEpoch = cache.LayoutStatic, 20*time.Second, time.Minute
	e := open(t, o)
	defer closeEngine(t, e)
	l, like := losing{d: d, e: e, world: 1}, newLikeness(e)
	l.ask(t, 0, fmt.Sprintf(class, 1, "paper", 0.5, 0.5, 8))
	p := e.owner.importance.Load()
	count := func() int { nodes, _ := p.high.Nodes(); return nodes }
	for epoch, said := range []Unsent{{Dimension: 16}, {Changed: true}} {
		l.begin(t, epoch)
		l.classSteps(t, like, epoch, 8)
		e.settleNodes(t, p)
		bytes := p.high.Held().Taken()
		if count() == 0 {
			t.Errorf("epoch %d: no nodes", epoch)
		}
		e.EndEpoch(0, 0, score.Progress{Epoch: math.MaxUint32}, said) // which ends no epoch
		waitFor(t, "the nodes are forgotten", func() bool { return count() == 0 })
		if after := p.high.Held().Taken(); after >= bytes || p.Status().Epoch != epoch {
			t.Errorf("epoch %d: %d bytes, and %d after the embeddings changed; the epoch is %d", epoch, bytes, after, p.Status().Epoch)
		}
	}
}

// TestClassByIndex: a request by index that is the epoch's own is served by the plan, and counts as that; another job's is exact.
func TestClassByIndex(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Layout, o.Patience, o.LateEpoch = cache.LayoutStatic, 20*time.Second, time.Minute
	e := open(t, o)
	defer closeEngine(t, e)
	l, like := losing{d: d, e: e, world: 1}, newLikeness(e)
	l.ask(t, 0, fmt.Sprintf(class, 1, "paper", 0.7, 0.7, 8))
	for epoch := range 3 {
		l.begin(t, epoch)
		l.classSteps(t, like, epoch, 8)
		e.settleNodes(t, e.owner.importance.Load())
	}
	order := l.begin(t, 3)[0]
	before := e.Status().Jobs[0].Importance.Substituted
	c := attach(t, e)
	defer c.Disconnected()
	c.TakesOthers()
	replaced := int64(0)
	for b, asked := range slices.Collect(slices.Chunk(order, 16)) {
		for _, at := range []*deliver.Position{nil, {Epoch: 3, Batch: b}} {
			got, err := c.Get(t.Context(), asked, at)
			if err == nil {
				err = d.check(e, got)
			}
			if err != nil {
				t.Fatal(err)
			}
			if at == nil && !slices.Equal(got.Indices, asked) {
				t.Errorf("batch %d without a position: %v for %v", b, got.Indices, asked)
			}
			for k, i := range got.Indices {
				if i != asked[k] {
					replaced++
				}
			}
			c.Release(got.Lease)
		}
	}
	if after := e.Status().Jobs[0].Importance.Substituted; replaced < 20 || after-before != replaced {
		t.Errorf("%d samples were replaced, %d are counted", replaced, after-before)
	}
}
