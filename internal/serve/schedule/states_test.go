package schedule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/sample"
)

// The model of an epoch consists of plain sets. TestStates compares it with a Schedule after every step of random
// walks.
type modelEpoch struct {
	pushed  map[int]modelOrder // by rank
	partial map[int]bool       // ranks with a partial order
	allowed bool               // the recipe's order was released although orders are held back
	dropped bool
	session string // that pushed the dropped orders; "": several
}

type modelOrder struct {
	batches [][]sample.Index
	session string
}

type model struct {
	recipe, held bool
	local        int // number of expected ranks
	ranks        int // number of ranks that push: without a recipe, more than the expected ones may
	epochs       [3]modelEpoch
}

// modelBegan is the time of all pushes.
var modelBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// What ranks push in the walks: one order that completes the partial one, and one that does not.
var (
	modelPart   = [][]sample.Index{{1, sample.None}, {3}}
	modelFills  = [][]sample.Index{{1, 9}, {3}}
	modelOthers = [][]sample.Index{{2, 4}, {6}}
)

func (m *model) replays(e int) bool { return m.recipe && (!m.held || m.epochs[e].allowed) }

func (m *model) isKnown(e int) bool { return m.replays(e) || len(m.epochs[e].pushed) > 0 }

func (m *model) isComplete(e int, patient bool) bool {
	if m.replays(e) {
		return true
	}
	ep := &m.epochs[e]
	for r := range m.local {
		if _, is := ep.pushed[r]; !is && !ep.partial[r] {
			return !patient && len(ep.pushed) > 0
		}
	}
	return true
}

// finding returns the schedule's finding for a rank's first batch.
func (m *model) finding(e, r int) Finding {
	if _, is := m.epochs[e].pushed[r]; is || !m.epochs[e].dropped && m.replays(e) {
		return Scheduled
	}
	return Unknown
}

// chunk returns a rank's first batch, or the reason why there is none.
func (m *model) chunk(e, r int, recipe *Schedule) string {
	if o, is := m.epochs[e].pushed[r]; is {
		return fmt.Sprint(o.batches[0])
	}
	if m.epochs[e].dropped {
		return "push it again"
	}
	if m.replays(e) {
		batch, _, _ := recipe.Chunk(context.Background(), chunker.Position{Epoch: e, Rank: r})
		return fmt.Sprint(batch)
	}
	return "none"
}

func (m *model) batches(e, r int) int {
	if o, is := m.epochs[e].pushed[r]; is {
		return len(o.batches)
	}
	if m.replays(e) {
		return (10/m.local + 1) / 2 // 10 samples, batches of 2
	}
	return 0
}

func (m *model) forget(e int) {
	m.epochs[e] = modelEpoch{pushed: map[int]modelOrder{}, partial: map[int]bool{}}
}

// pushPartial reports whether a partial order of a rank is accepted.
func (m *model) pushPartial(e, r int) bool {
	ep := &m.epochs[e]
	if _, pushed := ep.pushed[r]; pushed || m.replays(e) {
		return false
	}
	ep.partial[r], ep.dropped = true, false
	return true
}

func (m *model) allow(e int) {
	if m.recipe && m.held && !m.epochs[e].allowed {
		m.epochs[e].allowed = true
		clear(m.epochs[e].partial)
	}
}

// push reports whether the epoch's order has changed.
func (m *model) push(e, r int, o modelOrder) (changed bool) {
	ep := &m.epochs[e]
	before, is := ep.pushed[r]
	if is && slices.EqualFunc(before.batches, o.batches, slices.Equal) {
		ep.pushed[r] = o
		return false
	}
	fills := !is && ep.partial[r] && slices.EqualFunc(o.batches, modelFills, slices.Equal)
	ep.pushed[r], ep.dropped = o, false
	delete(ep.partial, r)
	if !fills {
		clear(ep.partial)
	}
	return !fills
}

func (m *model) drop(e int) {
	ep := &m.epochs[e]
	session, several := "", false
	for _, o := range ep.pushed {
		several = several || session != "" && session != o.session
		session = o.session
	}
	if several {
		session = ""
	}
	allowed := ep.allowed
	m.forget(e)
	m.epochs[e].dropped, m.epochs[e].session, m.epochs[e].allowed = true, session, allowed
}

// isOthers reports whether another session than a pushed a rank's order.
func (m *model) isOthers(e, r int) bool {
	ep := &m.epochs[e]
	pusher := ""
	if ep.dropped {
		pusher = ep.session
	}
	if o, is := ep.pushed[r]; is {
		pusher = o.session
	}
	return pusher != "" && pusher != "a"
}

// compare compares all queries of the schedule with the model.
func (m *model) compare(s, recipe *Schedule) (wrong []string) {
	say := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			wrong = append(wrong, fmt.Sprintf("%s: %v, want %v", what, got, want))
		}
	}
	ctx := context.Background()
	for e := range m.epochs {
		say(fmt.Sprintf("IsKnown(%d)", e), s.IsKnown(e), m.isKnown(e))
		say(fmt.Sprintf("IsComplete(%d) in time", e), s.IsComplete(e, time.Hour), m.isComplete(e, true))
		s.now = func() time.Time { return modelBegan.Add(time.Hour + 1) }
		say(fmt.Sprintf("IsComplete(%d) after an hour", e), s.IsComplete(e, time.Hour), m.isComplete(e, false))
		s.now = func() time.Time { return modelBegan }
		_, err := s.Order(ctx, e)
		say(fmt.Sprintf("Order(%d) exists", e), err == nil, m.isKnown(e))
		o, err := s.ToLayOut(ctx, e)
		say(fmt.Sprintf("ToLayOut(%d) exists", e), err == nil, m.isKnown(e) || len(m.epochs[e].partial) > 0)
		if err == nil {
			pushed := len(m.epochs[e].pushed)
			open := !m.replays(e) && len(m.epochs[e].partial) > 0
			say(fmt.Sprintf("ToLayOut(%d) has places that are open", e), slices.Contains(o.Global, sample.None), open)
			say(fmt.Sprintf("ToLayOut(%d) is the recipe's", e), o.Key == keyOf(recipe, e), m.replays(e) && pushed < m.local)
			say(fmt.Sprintf("IsCurrent(%d)", e), s.IsCurrent(e, o), true)
		}
		for r := range m.ranks {
			at := chunker.Position{Epoch: e, Rank: r}
			found, _ := s.At(ctx, at)
			say(fmt.Sprintf("At(%d, %d)", e, r), found, m.finding(e, r))
			say(fmt.Sprintf("Batches(%d, %d)", e, r), s.Batches(e, r), m.batches(e, r))
			say(fmt.Sprintf("Chunk(%d, %d)", e, r), chunkOf(s.Chunk(ctx, at)), m.chunk(e, r, recipe))
			want := m.chunk(e, r, recipe)
			if m.recipe && m.isOthers(e, r) {
				batch, _, _ := recipe.Chunk(ctx, at)
				want = fmt.Sprint(batch)
			}
			meant, err := s.Meant(ctx, "a", at)
			say(fmt.Sprintf("Meant(%d, %d) by session a", e, r), chunkOf(meant.Indices, meant.Exists, err), want)
		}
	}
	return wrong
}

func chunkOf(batch []sample.Index, ok bool, err error) string {
	switch {
	case err != nil && strings.Contains(err.Error(), "push it again"):
		return "push it again"
	case err != nil:
		return "none"
	}
	return fmt.Sprint(batch)
}

func keyOf(recipe *Schedule, epoch int) (key [16]byte) {
	if recipe != nil {
		if o, err := recipe.Order(context.Background(), epoch); err == nil {
			key = o.Key
		}
	}
	return key
}

// A walker takes random steps with a Schedule and its model.
type walker struct {
	t      *testing.T
	r      *rand.Rand
	s      *Schedule
	recipe *Schedule // a Schedule whose orders never change; nil without a recipe
	m      *model
	steps  []string
	seen   *[states][events]bool // the transitions of all walks
}

// newWalker makes a walker over 10 samples.
func newWalker(t *testing.T, r *rand.Rand, withRecipe bool, local int) *walker {
	t.Helper()
	ranks, job := 2, Job{World: local}
	if withRecipe {
		ranks = local
		job = Job{Recipe: "torch.distributed_sampler", Seed: "7", BatchSize: 2, World: local}
	}
	w := &walker{t: t, r: r, m: &model{recipe: withRecipe, local: local, ranks: ranks}}
	for _, to := range []**Schedule{&w.s, &w.recipe} {
		s, err := New(job, 10)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		*to = s
	}
	w.s.now = func() time.Time { return modelBegan }
	if !withRecipe {
		w.recipe = nil
	}
	for e := range w.m.epochs {
		w.m.forget(e)
	}
	return w
}

// step takes a step and compares.
func (w *walker) step() {
	w.t.Helper()
	e, r := w.r.IntN(len(w.m.epochs)), w.r.IntN(w.m.ranks)
	ep, was := &w.m.epochs[e], w.s.look(e).state
	switch w.r.IntN(8) {
	case 0, 1:
		w.steps = append(w.steps, fmt.Sprintf("PushPartial(%d, %d)", e, r))
		err := w.s.PushPartial(e, r, modelPart, noneSpare)
		if taken := w.m.pushPartial(e, r); taken != (err == nil) {
			w.fail(fmt.Sprintf("%v, want that it is taken: %v", err, taken))
		}
		if err == nil {
			w.saw(was, pushPart, e)
		}
	case 2, 3, 4:
		o := modelOrder{[][][]sample.Index{modelFills, modelOthers}[w.r.IntN(2)], []string{"a", "b"}[w.r.IntN(2)]}
		w.steps = append(w.steps, fmt.Sprintf("Push(%d, %d, %v by %s)", e, r, o.batches, o.session))
		if err := w.s.Claim(1, r, 0, func(int) bool { return false }); err != nil {
			w.fail(err.Error())
		}
		version := w.s.Version(e)
		changed, _, err := w.s.Push(w.t.Context(), Pusher{1, o.session}, e, r, Cut(o.batches), noneSpare)
		if want := w.m.push(e, r, o); err != nil || changed != want || changed != (w.s.Version(e) != version) {
			w.fail(fmt.Sprintf("changed %v, want %v; version %d, then %d; %v", changed, want, version, w.s.Version(e), err))
		}
		ev := pushLast
		for rank := range w.m.local {
			if _, pushed := ep.pushed[rank]; !pushed {
				ev = pushSome
			}
		}
		w.saw(was, ev, e)
	case 5:
		w.steps = append(w.steps, fmt.Sprintf("DropSpare(%d)", e))
		if dropped := w.s.DropSpare(func(epoch, _ int) bool { return epoch == e }); dropped != (len(ep.pushed) > 0) {
			w.fail(fmt.Sprintf("dropped: %v", dropped))
		}
		if len(ep.pushed) > 0 {
			w.m.drop(e)
			w.saw(was, drop, e)
		}
	case 6:
		w.steps = append(w.steps, fmt.Sprintf("Allow(%d)", e))
		w.s.Release(e)
		if w.m.allow(e); w.s.look(e).state != was {
			w.saw(was, release, e)
		}
	case 7:
		w.retract(e)
	}
	if wrong := w.m.compare(w.s, w.recipe); len(wrong) > 0 {
		w.fail(strings.Join(wrong, "\n"))
	}
}

// saw notes a transition, which must be in the table.
func (w *walker) saw(from state, ev event, epoch int) {
	w.t.Helper()
	if got, want := w.s.look(epoch).state, transitions[from][ev]; got != want {
		w.fail(fmt.Sprintf("state %d, event %d: state %d, want %d", from, ev, got, want))
	}
	w.seen[from][ev] = true
}

// retract retracts the orders from an epoch on, or begins to hold orders back.
func (w *walker) retract(from int) {
	switch {
	case w.m.held:
		w.steps = append(w.steps, fmt.Sprintf("Retract(%d)", from))
		w.s.Retract(from)
	case w.r.IntN(4) == 0:
		w.steps = append(w.steps, "Withhold()")
		w.s.Hold()
		w.m.held, from = true, 0
	default:
		return
	}
	for e := from; e < len(w.m.epochs); e++ {
		w.m.forget(e)
	}
}

func (w *walker) fail(why string) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s", strings.Join(w.steps, "\n"), why)
}

// TestStates walks at random through the states of an epoch's order. After every step it compares all queries with a
// model. The walks cover every transition of the table.
func TestStates(t *testing.T) {
	seen := &[states][events]bool{}
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWalker(t, r, seed%3 > 0, 1+int(seed%2))
		w.seen = seen
		for range 40 {
			w.step()
		}
		w.s.Hold()
		if w.s.kept != 0 {
			w.fail(fmt.Sprintf("%d bytes are kept of orders that are forgotten", w.s.kept))
		}
	}
	for from, row := range transitions {
		for ev, to := range row {
			if is := seen[from][ev]; is != (to != states) {
				t.Errorf("state %d, event %d: seen %v, the table has state %d", from, ev, is, to)
			}
		}
	}
}
