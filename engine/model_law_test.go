package engine

import (
	"errors"
	"slices"

	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/importance/substitute"
	"lcache/internal/serve/deliver"
	"lcache/sample"
)

// served is a model's record of the samples that were served as substitutes.
type served struct {
	promises        map[int]*promise // by epoch
	replaced        int              // samples that others were served for
	packed, cleaned int64            // of one server: packages that were begun, and bytes that were moved out of emptied pieces
}

// A promise is a model's record of an epoch with substitutes. It holds until the epoch is drawn again, also over restarts of the server.
type promise struct {
	high  map[sample.Index]bool   // the H-samples; nil: they are not known
	told  map[turn][]sample.Index // the served samples of a batch
	stood map[sample.Index][]turn // the batches in which a sample stood in for another one
	exact map[sample.Index][]turn // the batches in which it was served as itself
}

// turn is a batch of a rank. Ranks that keep step read one batch each, in turn.
type turn struct{ batch, rank int }

func (a turn) before(b turn) bool { return a.batch < b.batch || a.batch == b.batch && a.rank < b.rank }

// promise returns the record of an epoch.
func (m *model) promise(epoch int) *promise {
	if m.promises[epoch] == nil {
		m.promises[epoch] = &promise{told: map[turn][]sample.Index{}, stood: map[sample.Index][]turn{}, exact: map[sample.Index][]turn{}}
	}
	return m.promises[epoch]
}

// advance makes the boundary before an epoch in the twin, and notes the H-samples of the epochs that are drawn there.
func (m *model) advance(epoch int) {
	twin := m.drawing.twin
	before := twin.Orders()
	if err := errors.Join(twin.Advance(epoch, score.Progress{Epochs: m.e.cache.Record.Job.Epochs}), twin.Save()); err != nil {
		m.fail("the twin: %v", err)
	}
	for epoch, order := range twin.Orders() {
		if before[epoch] == order {
			continue
		}
		delete(m.promises, epoch)
		m.promise(epoch).high = m.highOf(twin)
	}
}

// highOf returns the current H-samples of a state.
func (m *model) highOf(twin *state.State) map[sample.Index]bool {
	set, err := twin.High()
	if err != nil {
		m.fail("the H-samples of the twin: %v", err)
	}
	defer set.Close()
	high := map[sample.Index]bool{}
	for i := range set.All {
		high[i] = true
	}
	return high
}

// checkServed checks a batch in which others may be served for the samples wanted: by the law, and the same each time.
func (m *model) checkServed(at deliver.Position, b *deliver.Batch, want []sample.Index) {
	p, here := m.promise(at.Epoch), turn{at.Batch, at.Rank}
	if !slices.Equal(b.Requested, want) || len(b.Indices) != len(want) {
		m.fail("%+v: %v is served for %v, want %v", at, b.Indices, b.Requested, want)
	}
	if before, told := p.told[here]; told {
		if !slices.Equal(before, b.Indices) {
			m.fail("%+v: %v is served, and was %v before", at, b.Indices, before)
		}
		return
	}
	p.told[here] = slices.Clone(b.Indices)
	for k, i := range b.Indices {
		if i == want[k] {
			p.exact[i] = append(p.exact[i], here)
			continue
		}
		p.stood[i] = append(p.stood[i], here)
		if slices.Contains(want, i) || slices.Contains(b.Indices[:k], i) {
			m.fail("%+v: %d is served twice in %v for %v", at, i, b.Indices, want)
		}
		m.replaced++
	}
	for k, i := range b.Indices {
		m.isLawful(at, p, want[k], i)
	}
}

// isLawful checks how often, and when, a served sample was a substitute: an L-sample that was served before is never one, and a node is seldom one, within its class.
func (m *model) isLawful(at deliver.Position, p *promise, want, served sample.Index) {
	c := m.drawing.twin.Config
	if c.Substitute == substitute.Class {
		if want != served && p.high[want] {
			m.fail("%+v: %d stands in for %d, an H-sample", at, served, want)
		}
		if labels := m.e.cache.Manifest.Labels(); len(p.stood[served]) > c.Params.MaxUses || labels[served] != labels[want] {
			m.fail("%+v: %d stands in for %d, and did at %v", at, served, want, p.stood[served])
		}
		return
	}
	if want != served && (p.high[want] || p.high[served]) {
		m.fail("%+v: %d stands in for %d, want two L-samples", at, served, want)
	}
	for _, stood := range p.stood[served] {
		earlier := func(t turn) bool { return t.before(stood) }
		if len(p.stood[served]) > 1 || slices.ContainsFunc(p.exact[served], earlier) {
			m.fail("%+v: %d stands in for others at %v, and is served as itself at %v", at, served, p.stood[served], p.exact[served])
		}
	}
}
