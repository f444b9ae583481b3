package importance

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/losses"
	"lcache/sample"
)

// TestLCacheLaw: a substitute was not served in this epoch, an exact read counts as served, and a refused candidate stays.
func TestLCacheLaw(t *testing.T) {
	for trial := range uint64(40) {
		r := rand.New(rand.NewPCG(trial, 1))
		const n = 60
		size := func(i sample.Index) int64 { return 1 + int64(i)%3 }
		c := ok[*LCache](t)(NewLCache(n, 25))
		served, asked, loaded := map[sample.Index]bool{}, []sample.Index{}, []sample.Index{}
		for step := range 1500 {
			switch x := r.IntN(12); {
			case x == 0:
				var members []sample.Index
				for range 8 {
					members = append(members, r.Uint32N(n+2)) // also beyond the dataset
				}
				drop := c.Load(members, size)
				for _, i := range members {
					if i < n && !served[i] && !slices.Contains(loaded, i) {
						loaded = append(loaded, i)
					}
				}
				used := int64(0)
				for _, i := range loaded {
					used += size(i)
				}
				want := []sample.Index(nil)
				for used > 25 {
					used -= size(loaded[0])
					want = append(want, loaded[0])
					loaded = loaded[1:]
				}
				if !slices.Equal(drop, want) {
					t.Fatalf("trial %d, step %d: a package drops %v, want %v", trial, step, drop, want)
				}
			case x == 1 && step%10 == 0:
				c.Begin()
				served, asked = map[sample.Index]bool{}, nil
			default:
				id := r.Uint32N(n)
				odd := func(i sample.Index) bool { return i%2 == 1 }
				may := []May{nil, Always, odd}[r.IntN(3)]
				got, kind := c.Get(id, may)
				wantID, wantKind := id, Miss
				if slices.Contains(loaded, id) {
					wantKind = Hit
				} else {
					if !served[id] && !slices.Contains(asked, id) {
						asked = append(asked, id)
					}
					if k := slices.IndexFunc(loaded, func(i sample.Index) bool { return may != nil && may(i) }); k >= 0 {
						wantID, wantKind = loaded[k], Substitute
					}
				}
				if got != wantID || kind != wantKind {
					t.Fatalf("trial %d, step %d: sample %d is a %v by %d, want a %v by %d", trial, step, id, kind, got, wantKind, wantID)
				}
				if kind == Miss {
					c.Served(id)
				}
				if kind == Substitute && served[got] {
					t.Fatalf("trial %d, step %d: substitute %d was served before", trial, step, got)
				}
				served[got] = true
				loaded = slices.DeleteFunc(loaded, func(i sample.Index) bool { return i == got })
			}
			if left := c.Left(); !slices.Equal(left, loaded) {
				t.Fatalf("trial %d, step %d: left %v, want %v", trial, step, left, loaded)
			}
			if !slices.Equal(c.Asked(), asked) {
				t.Fatalf("trial %d, step %d: asked %v, want %v", trial, step, c.Asked(), asked)
			}
		}
		c.Close()
	}
}

// TestPacking: a sample goes to one of the lanes by hash, H-samples to the last one, and nothing is written beyond what was consumed.
func TestPacking(t *testing.T) {
	p, again := NewPacking(3, 7), NewPacking(3, 7)
	var uses [4]int
	same := 0
	for i := range sample.Index(3000) {
		lane := p.Lane(i, i%10 == 0)
		if got := again.Lane(i, i%10 == 0); got != lane {
			t.Fatalf("sample %d goes to lane %d, and to %d", i, lane, got)
		}
		if (lane == 3) != (i%10 == 0) {
			t.Fatalf("sample %d is in lane %d", i, lane)
		}
		if lane == p.Lane(i, i%10 == 0) && lane != 3 { // packed once more
			same++
		}
		again.Lane(i, i%10 == 0)
		uses[lane]++
	}
	for lane, n := range uses[:3] {
		if n < 800 || n > 1000 {
			t.Errorf("lane %d took %d of 2,700 samples", lane, n)
		}
	}
	if same < 700 || same > 1100 {
		t.Errorf("%d of 2,700 samples go to the same lane once more, want a third", same)
	}
	if p.May(1) || !p.May(0) {
		t.Error("nothing was consumed, and something may be written")
	}
	p.Consumed(100)
	p.Wrote(60)
	if !p.May(40) || p.May(41) {
		t.Error("100 bytes were consumed, 60 written, and not just 40 may be written")
	}
}

// TestVictim: what is emptied next.
func TestVictim(t *testing.T) {
	dense, half, sparse := Piece{Bytes: 100, Live: 90, Low: 90}, Piece{Bytes: 100, Live: 50, Low: 20}, Piece{Bytes: 100, Live: 49, Low: 49}
	emptier, ordered, taken := Piece{Bytes: 1000, Live: 100}, Piece{Bytes: 100, Live: 95, Ordered: true}, Piece{Bytes: 100, Live: 1, Stays: true}
	loose, tight, short := Space{100, 10, 5}, Space{100, 9, 5}, Space{100, 4, 5}
	for _, c := range []struct {
		story  string
		pieces []Piece
		space  Space
		want   int
	}{
		{"there is space", []Piece{sparse, emptier}, loose, -1},
		{"less than a tenth is free: the emptiest goes first", []Piece{dense, sparse, emptier, ordered}, tight, 2},
		{"nothing is sparse", []Piece{dense, half, ordered}, tight, -1},
		{"no space at all: a segment of a Logfile goes, whatever lives in it", []Piece{dense, half, ordered}, short, 2},
		{"no space at all, and all lies in packages: dense ones stay", []Piece{dense, half}, short, -1},
		{"one that is being emptied, or can't be, is not chosen", []Piece{taken, sparse}, tight, 1},
		{"one that has nothing on disk is not chosen", []Piece{{}, dense}, short, -1},
		{"nothing is there", nil, short, -1},
	} {
		if got := Victim(c.pieces, c.space); got != c.want {
			t.Errorf("%s: %d, want %d", c.story, got, c.want)
		}
	}
	for _, c := range []struct {
		p    Piece
		want bool
	}{{dense, true}, {half, false}, {sparse, false}, {ordered, false}, {Piece{Bytes: 100, Live: 100, Low: 50}, true}} {
		if c.p.Holds() != c.want {
			t.Errorf("%+v holds L-samples: %v", c.p, !c.want)
		}
	}
}

func TestHBytes(t *testing.T) {
	for _, c := range []struct{ total, high, low, pack, want int64 }{
		{1000, 2, 1, 100, 666}, {1000, 1, 0, 100, 900}, {1000, 0, 5, 100, 0}, {50, 9, 1, 100, 0}, {0, 1, 1, 0, 0},
		{1 << 62, 1 << 62, 1 << 62, 0, 1 << 61},
	} {
		if got := HBytes(c.total, c.high, c.low, c.pack); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestOnce(t *testing.T) {
	var o Once
	say := func(rank uint16, epoch, batch uint32, kind uint8) bool {
		return o.New(&Observation{Rank: rank, Epoch: epoch, Batch: batch, Kind: kind})
	}
	for k, c := range []struct {
		rank         uint16
		epoch, batch uint32
		kind         uint8
		want         bool
	}{
		{0, 0, 0, Losses, true}, {0, 0, 0, Losses, false}, {0, 0, 3, Losses, true}, {0, 0, 2, Losses, false}, {1, 0, 0, Losses, true},
		{0, 0, 0, Reevaluated, true}, {0, 1, 0, Losses, true}, {0, 0, 3, Losses, false}, {0, 0, 4, Losses, true},
	} {
		if got := say(c.rank, c.epoch, c.batch, c.kind); got != c.want {
			t.Errorf("observation %d: new %v, want %v", k, got, c.want)
		}
	}
	for e := range uint32(100) {
		for rank := range uint16(8) {
			say(rank, e, 0, Losses)
		}
		o.Forget(e)
		if len(o.newest) > 8*2+3 {
			t.Fatalf("%d entries are kept in epoch %d", len(o.newest), e)
		}
	}
}

func TestRepetition(t *testing.T) {
	var r Repetition
	a := func(x float64) *float64 { return &x }
	for k, c := range []struct {
		accuracy *float64
		want     float64
	}{{nil, 1}, {a(0.5), 3}, {a(0.6), 3}, {a(0.6), 3}, {a(0.5), 1}, {a(0.7), 3}, {a(0.6), 1}, {nil, 1}, {a(0.1), 3}} {
		r.EndEpoch(c.accuracy)
		if got := r.Allow(3); got != c.want {
			t.Errorf("after epoch %d: %v times, want %v", k, got, c.want)
		}
	}
	if got := r.Allow(1); got != 1 {
		t.Errorf("nobody wants repetition, and it is %v", got)
	}
}

// TestElasticStays: without the number of epochs, while the spread grows, and never up again.
func TestElasticStays(t *testing.T) {
	e := NewElastic(0.9, 0.8, 0.01, 5)
	for k := range 20 {
		if r := e.EndEpoch(1/float64(k+1), nil, 0); r != 0.9 {
			t.Fatalf("the number of epochs is not known, and the ratio is %v", r)
		}
	}
	e = NewElastic(0.9, 0.8, 0.01, 5)
	for k := range 20 {
		if r := e.EndEpoch(float64(k), nil, 20); r != 0.9 {
			t.Fatalf("values spread more and more, and the ratio is %v", r)
		}
	}
	e = NewElastic(0.9, 0.8, 0.01, 5)
	last := 0.9
	r := rand.New(rand.NewPCG(1, 1))
	for k := range 60 { // longer than was said
		a := r.Float64()
		sigma := 1 / float64(k+1)
		if k > 10 {
			sigma = r.Float64()
		}
		ratio := e.EndEpoch(sigma, &a, 40)
		if ratio > last || ratio < 0.8-1e-12 {
			t.Fatalf("epoch %d: the ratio goes from %v to %v", k, last, ratio)
		}
		last = ratio
	}
	if last > 0.801 {
		t.Errorf("after all epochs the ratio is %v, want 0.8", last)
	}
}

// TestWarmUp: it ends by the rule, S is what wanders, and no epoch without observations counts.
func TestWarmUp(t *testing.T) {
	const n, seeds = 2000, 3
	for seed := range uint64(seeds) {
		g := losses.New(n, seed+1)
		s := ok[*Loss](t)(NewLoss(n, LossOptions{Unstable: n / 20, Overlap: 0.8, MaxEpochs: 10}))
		observed, e := 0, 0
		for ; s.Activity().State != Active && e < 30; e++ {
			if e != 2 { // one epoch without a word
				index := make([]sample.Index, n)
				for i := range index {
					index[i] = uint32(i)
				}
				s.Observe(Observation{Kind: Losses, Epoch: uint32(e), Index: index, Loss: g.Epoch(e)})
				observed++
			}
			s.EndEpoch(Progress{Epoch: e})
		}
		unstable := 0
		for _, i := range s.Unstable() {
			if g.Far(int(i)) {
				unstable++
			}
		}
		if len(s.Unstable()) != n/20 || !slices.IsSorted(s.Unstable()) || unstable < n/20*95/100 {
			t.Errorf("seed %d: S has %d samples, of which %d wander", seed, len(s.Unstable()), unstable)
		}
		if s.WarmUpEpochs() != observed || observed < 4 || observed > 10 {
			t.Errorf("seed %d: the warm-up took %d epochs, %d were observed", seed, s.WarmUpEpochs(), observed)
		}
		s.Close()
	}
	for _, fixed := range []int{1, 3} {
		s := ok[*Loss](t)(NewLoss(10, LossOptions{Unstable: 2, Overlap: 0.8, MaxEpochs: 10, Fixed: fixed}))
		for e := range fixed {
			if s.Activity().State != Warmup {
				t.Errorf("a warm-up of %d epochs has ended after %d", fixed, e)
			}
			observe(s, 10, e)
			s.EndEpoch(Progress{Epoch: e})
		}
		if s.Activity().State != Active {
			t.Errorf("a warm-up of %d epochs has not ended", fixed)
		}
		s.Close()
	}
}

// TestRepeatedBoundary: what a boundary draws follows from the values: asked again it is the same, for another epoch another one.
func TestRepeatedBoundary(t *testing.T) {
	for name, s := range scorers(t, 500) {
		m := ok[Method](t)(Lookup(name))
		observe(s, 500, 0)
		s.EndEpoch(Progress{Epoch: 0})
		b := Boundary{Scorer: s, Samples: 500, Seed: 11, Draw: Systematic}
		draw := func(e int) []uint32 {
			order := ok[[]uint32](t)(b.Order(e, m.Targets(m.Defaults), nil))
			defer offheap.Free(order)
			return slices.Clone(order)
		}
		if !slices.Equal(draw(1), draw(1)) || slices.Equal(draw(1), draw(2)) {
			t.Errorf("%s: the order of an epoch is not a function of the values and the epoch", name)
		}
		if plain := draw(0); len(plain) != 500 || slices.Contains(uses(plain, 500), 0) {
			t.Errorf("%s: epoch 0 is no permutation", name)
		}
		b.Lag = 1
		if plain := draw(1); slices.Contains(uses(plain, 500), 0) {
			t.Errorf("%s: with lag 1, epoch 1 is no permutation", name)
		}
	}
}
