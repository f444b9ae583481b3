package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestCrowd: several clients keep most of their batches, send requests concurrently, and have little side memory. Every request is answered with
// the right bytes, in a lease or in lent parts. Held bytes do not change.
func TestCrowd(t *testing.T) {
	eachModel(t, 60, testenv.Pick(3, 2), (*model).runInACrowd)
}

func (m *model) runInACrowd(ops int) {
	m.opts.Side = 256<<10 + m.r.IntN(2<<20)
	m.opts.Patience = time.Duration(1+m.r.IntN(5)) * time.Millisecond
	m.opts.LeaseTime = time.Duration(1+m.r.IntN(1000)) * time.Millisecond
	m.start()
	for len(m.clients) < 6 {
		m.clients = append(m.clients, &modelClient{c: attach(m.t, m.e)})
	}
	lent := 0
	for range ops {
		for _, mc := range m.clients {
			mc.c.Copies()
		}
		switch p := m.r.IntN(100); {
		case p < 80:
			lent += m.askAtOnce()
		case p < 85:
			m.jump()
		case p < 90:
			m.push()
		case p < 95:
			m.leave()
		default:
			m.damage()
		}
	}
	m.t.Logf("%d requests were answered in parts", lent)
	m.checkHeld()
	m.stop()
}

// askAtOnce lets every client send a request at the same time, and returns how many got it in parts.
func (m *model) askAtOnce() (lent int) {
	asks := make([]func() ([]sample.Index, *deliver.Batch, bool, error), len(m.clients))
	wants := make([][]sample.Index, len(m.clients))
	for k, mc := range m.clients {
		for len(mc.held) > m.r.IntN(12) {
			m.drop(mc, m.r.IntN(len(mc.held)))
		}
		if k < len(m.at) && m.r.IntN(3) > 0 && m.again == nil {
			at := m.at[k]
			if wants[k] = m.wanted(at); wants[k] != nil {
				m.at[k].Batch++
				m.note("client %d: chunk %+v", k, at)
				asks[k] = func() ([]sample.Index, *deliver.Batch, bool, error) {
					b, err := mc.c.Chunk(context.Background(), at.Epoch, at.Rank, at.Batch)
					return m.lease(b, err, func(from int) (*deliver.LentPart, error) {
						return mc.c.LendChunk(context.Background(), at.Epoch, at.Rank, at.Batch, from)
					}, mc)
				}
				continue
			}
			m.at[k].Epoch, m.at[k].Batch = m.r.IntN(m.job.Epochs), 0
		}
		want := make([]sample.Index, m.r.IntN(30))
		for i := range want {
			want[i] = m.r.Uint32N(uint32(len(m.d.bytes)))
		}
		wants[k] = want
		m.note("client %d: get %v", k, want)
		asks[k] = func() ([]sample.Index, *deliver.Batch, bool, error) {
			b, err := mc.c.Get(context.Background(), want, nil)
			return m.lease(b, err, func(from int) (*deliver.LentPart, error) { return mc.c.Lend(context.Background(), want, from, nil) }, mc)
		}
	}
	type answer struct {
		indices []sample.Index
		batch   *deliver.Batch
		lent    bool
		err     error
	}
	answers := make([]answer, len(asks))
	var group sync.WaitGroup
	for k, ask := range asks {
		group.Go(func() {
			a := &answers[k]
			a.indices, a.batch, a.lent, a.err = ask()
		})
	}
	group.Wait()
	for k, a := range answers {
		if a.err != nil || !slices.Equal(a.indices, wants[k]) {
			m.fail("client %d: got %v, %v, want %v", k, a.indices, a.err, wants[k])
		}
		if a.lent {
			lent++
		}
		if a.batch != nil {
			m.clients[k].held = append(m.clients[k].held, a.batch)
			if err := m.d.check(m.e, a.batch); err != nil {
				m.fail("client %d: %v", k, err)
			}
		}
	}
	return lent
}

// wanted is want for a position that the job has.
func (m *model) wanted(at deliver.Position) []sample.Index {
	if at.Epoch >= m.job.Epochs || m.hasPush(at.Epoch, at.Rank) && m.pushed[at] == nil {
		return nil
	}
	return m.want(at)
}

// lease handles an answer as a client does. If memory was short, or the request is larger than side memory, it copies lent parts.
func (m *model) lease(b *deliver.Batch, err error, lend func(from int) (*deliver.LentPart, error), mc *modelClient) ([]sample.Index, *deliver.Batch, bool, error) {
	if err == nil {
		return b.Indices, b, false, nil
	}
	var full *deliver.RoomError
	var large *deliver.ArgumentError
	if !errors.As(err, &full) && !errors.As(err, &large) {
		return nil, nil, false, err
	}
	var indices []sample.Index
	for next, total := 0, 1; next < total; {
		l, err := lend(next)
		if err != nil {
			return nil, nil, true, err
		}
		var copies [][]byte
		for i := range l.Indices {
			copies = append(copies, bytes.Clone(m.e.staging.Slice(l.Offsets[i], int(l.Lengths[i]))))
		}
		if !mc.c.Copied(l.Lease) {
			continue
		}
		for i, index := range l.Indices {
			if !bytes.Equal(copies[i], m.d.bytes[index]) || l.Labels[i] != m.d.label[index] {
				return nil, nil, true, fmt.Errorf("sample %d: bytes or label differ from the source", index)
			}
		}
		indices, next, total = append(indices, l.Indices...), l.Next, l.Total
	}
	return indices, nil, true, nil
}
