package engine

import (
	"fmt"
	"slices"

	"lcache/internal/serve/deliver"
)

// otherJob is an additional job of a model. It begins at any time, has its own orders, and ends at any time.
type otherJob struct {
	*seat
	at deliver.Position
}

// mostOthers is the maximum number of additional jobs of a model.
const mostOthers = 3

// other makes an additional job begin, push an order, go back, continue, or end.
func (m *model) other() {
	p := m.r.IntN(100)
	if len(m.others) == 0 || p < 5 && len(m.others) < mostOthers {
		o := &otherJob{seat: m.d.join(m.t, m.e, fmt.Sprintf("job-%d", m.r.IntN(5)))}
		for _, have := range m.others {
			if have.number == o.number { // one token is one job, and a model's seats push over each other
				o.leave()
				return
			}
		}
		m.note("job %d begins", o.number)
		o.at = deliver.Position{Job: o.number}
		m.others = append(m.others, o)
	}
	i := m.r.IntN(len(m.others))
	o := m.others[i]
	switch {
	case p < 8:
		m.note("job %d ends", o.number)
		o.leave()
		m.others = slices.Delete(m.others, i, i+1)
		return
	case p < 20:
		o.at.Epoch, o.at.Batch = m.r.IntN(m.job.Epochs), 0
		m.note("job %d goes to epoch %d", o.number, o.at.Epoch)
	}
	if o.orders[o.at.Epoch] == nil || p > 95 {
		m.note("job %d pushes epoch %d", o.number, o.at.Epoch)
		if err := o.push(m.r, o.at.Epoch, 1+m.r.IntN(len(m.d.bytes))); err != nil {
			m.fail("push of a job: %v", err)
		}
	}
	for range 1 + m.r.IntN(10) {
		m.read(o)
	}
}

// read makes an additional job read its next batch.
func (m *model) read(o *otherJob) {
	order := o.orders[o.at.Epoch]
	if o.at.Batch >= len(order) {
		o.at.Batch = 0
		return
	}
	m.note("chunk %+v", o.at)
	b, err := o.c.ChunkAt(m.t.Context(), o.at)
	if err != nil {
		m.fail("%+v: %v", o.at, err)
	}
	if want := order[o.at.Batch]; !slices.Equal(b.Indices, want) {
		m.fail("%+v: got indices %v, want %v", o.at, b.Indices, want)
	}
	if err := m.d.check(m.e, b); err != nil {
		m.fail("%+v: %v", o.at, err)
	}
	o.c.Release(b.Lease)
	o.at.Batch++
}
