package engine

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"

	"lcache/internal/importance/draw"
	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/sample"

	"golang.org/x/sync/errgroup"
)

// importantJob is a model's job with importance. A twin state observes the same and gives the expected orders. The job's state outlives the
// server, as of the last boundary.
type importantJob struct {
	*seat
	twin     *state.State
	at       deliver.Position // of all ranks, which go in step
	observed int              // batches, by this process
}

// importances are the configurations that importance jobs of a model request.
var importances = []string{
	`{"method":"impact","lag":0,"params":{"s_share":0}}`,
	`{"method":"impact","lag":1,"params":{"s_share":0}}`,
	`{"method":"impact","lag":"split","params":{"warmup":1}}`,
	`{"method":"impact","substitute":"low","params":{"s_share":0}}`,
	`{"method":"impact","substitute":"low","lag":1,"params":{"s_share":0,"l_depth":1}}`,
	`{"method":"impact","policy":"paper","params":{"max_warmup":3}}`,
	`{"method":"shade","lag":0,"policy":"paper"}`,
	`{"method":"shade","lag":1,"draw":"multinomial"}`,
	`{"method":"shade","lag":"split","policy":"minio"}`,
	`{"method":"spider","lag":0,"policy":"lru"}`,
	`{"method":"spider","substitute":"class","lag":0,"params":{"ratio":[0.6,0.3],"m":2,"max_uses":3}}`,
	`{"method":"spider","substitute":"class","lag":1,"policy":"paper","params":{"ratio":[0.6,0.3],"m":2,"max_uses":3}}`,
}

// important lets a job with importance begin, read on and observe, go to another epoch, or end.
func (m *model) important() {
	if m.drawing == nil {
		m.beginImportant()
		return
	}
	o := m.drawing
	switch p := m.r.IntN(100); {
	case p < 8:
		m.leaveImportant()
		return
	case p < 16: // one process does not go far back
		m.askFor(max(o.twin.Epoch()-1, m.r.IntN(m.job.Epochs)))
	case p < 24:
		o.at.Batch = m.r.IntN(5)
	}
	for range 1 + m.r.IntN(20) {
		if m.drawing != nil {
			m.readImportant()
		}
	}
}

// beginImportant begins the job, or goes on with what its file has.
func (m *model) beginImportant() {
	o := &importantJob{seat: m.d.join(m.t, m.e, "drawing")}
	if m.importance == "" {
		cache := min(int64(m.r.IntN(3))*m.d.total/10, max(m.e.spareMemory(), 0))
		m.importance = fmt.Sprintf(`{"seed":%d,"cache":%d,"batch_size":%d,"world_size":%d,"drop_last":%v,%s`,
			m.r.Uint32(), cache, m.job.BatchSize, m.job.World, m.job.DropLast, importances[m.r.IntN(len(importances))][1:])
	}
	m.note("importance %s", m.importance)
	run := fmt.Sprint(m.r.Uint64())
	for rank := range m.job.World {
		if _, err := m.e.Importance(m.t.Context(), o.number, rank, run, []byte(m.importance)); err != nil {
			m.fail("importance: %v", err)
		}
	}
	p := m.e.lookUp(o.number).importance.Load()
	if o.twin = m.twin; m.twinOf == p { // the server has kept it
		m.continueImportant(o)
		return
	}
	m.closeTwin()
	data := state.Dataset{Fingerprint: m.e.cache.Manifest.Fingerprint().String(), Labels: m.e.cache.Manifest.Labels(), Sizes: m.e.cache.Manifest.Sizes()}
	var err error
	if o.twin, err = state.Open(p.config, filepath.Join(m.twinDir, "twin"), data, p.j.schedule.Replays(), slog.New(slog.DiscardHandler)); err == nil {
		err = errors.Join(o.twin.Advance(o.twin.Epoch(), score.Progress{}), o.twin.Save())
	}
	if err != nil {
		m.fail("the twin of an importance job: %v", err)
	}
	m.twin, m.twinOf = o.twin, p
	m.continueImportant(o)
}

// continueImportant continues in the twin's epoch, with processes that count their batches from 0.
func (m *model) continueImportant(o *importantJob) {
	for rank := range m.job.World {
		o.twin.Restarted(uint16(rank))
	}
	o.at = deliver.Position{Job: o.number, Epoch: o.twin.Epoch()}
	m.drawing = o
	if p := m.r.IntN(4); p == 0 || o.at.Epoch+1 == m.job.Epochs { // another training, from its beginning
		m.askFor(0)
	}
}

// closeTwin forgets the twin. Its file stays.
func (m *model) closeTwin() {
	if m.twin != nil {
		m.twin.Close()
	}
	m.twin, m.twinOf = nil, nil
}

// askFor lets all ranks of the job go to an epoch.
func (m *model) askFor(epoch int) {
	o := m.drawing
	m.note("the importance job goes to epoch %d", epoch)
	if epoch > o.twin.Epoch() || o.twin.Order(epoch) == nil { // without a boundary nothing is saved, and a restart continues from the last boundary
		m.advance(epoch)
	}
	o.at.Epoch, o.at.Batch = epoch, 0
	var asked errgroup.Group
	for rank := range o.twin.Config.WorldSize {
		asked.Go(func() error {
			_, _, err := m.e.OrderPage(m.t.Context(), o.number, epoch, rank, 0, 1)
			return err
		})
	}
	if err := asked.Wait(); err != nil {
		m.fail("the order of epoch %d: %v", epoch, err)
	}
	waitFor(m.t, fmt.Sprintf("the boundary before epoch %d", o.twin.Epoch()), func() bool { // with a lag the order was known before, and who leaves meanwhile takes the boundary back
		return m.twinOf.IsSaved(o.twin.Epoch())
	})
}

// orders returns the expected orders of the ranks in the epoch.
func (m *model) orders() (byRank [][][]sample.Index) {
	o := m.drawing
	order, c := o.twin.Order(o.at.Epoch), o.twin.Config
	if order == nil {
		m.fail("%+v: the twin has no such order", o.at)
	}
	for rank := range c.WorldSize {
		if order.Indices != nil {
			byRank = append(byRank, batchesOf(draw.Striped(order.Indices, c.WorldSize, c.DropLast), rank, c.WorldSize, c.BatchSize, c.DropLast))
			continue
		}
		indices, err := m.replay.Rank(o.at.Epoch, rank, nil)
		if err != nil {
			m.fail("replay: %v", err)
		}
		byRank = append(byRank, slices.Collect(slices.Chunk(indices, c.BatchSize)))
	}
	return byRank
}

// readImportant lets each rank read its next batch, and observe most of them.
func (m *model) readImportant() {
	o, ended := m.drawing, 0
	byRank := m.orders()
	for rank, batches := range byRank {
		at := o.at
		at.Rank = rank
		var want []sample.Index
		if at.Batch < len(batches) {
			want = batches[at.Batch]
		}
		m.note("chunk %+v", at)
		b, err := o.c.ChunkAt(m.t.Context(), at)
		switch {
		case errors.Is(err, io.EOF) && want == nil:
			ended++
			continue
		case err != nil:
			m.fail("%+v: %v", at, err)
		case b.Requested != nil && o.twin.Config.Substitute != "":
			m.checkServed(at, b, want)
		case !slices.Equal(b.Indices, want):
			m.fail("%+v: got indices %v, want %v", at, b.Indices, want)
		}
		if err := m.d.check(m.e, b); err != nil {
			m.fail("%+v: %v", at, err)
		}
		served := slices.Clone(b.Indices)
		o.c.Release(b.Lease)
		if m.r.IntN(10) > 0 {
			m.observeImportant(at, served)
		}
	}
	if o.at.Batch++; ended == len(byRank) {
		if o.at.Epoch+1 == m.job.Epochs {
			m.leaveImportant()
			return
		}
		m.askFor(o.at.Epoch + 1)
	}
}

// observeImportant reports a batch to the engine and the twin.
func (m *model) observeImportant(at deliver.Position, indices []sample.Index) {
	o := m.drawing
	seen := score.Observation{Kind: score.Losses, Rank: uint16(at.Rank), Epoch: uint32(at.Epoch), Batch: uint32(o.observed), Index: slices.Clone(indices), Node: sample.None}
	o.observed++
	if o.twin.Config.Method == "spider" {
		seen.Kind = score.Counts
		seen.Node = indices[m.r.IntN(len(indices))]
		for range m.r.IntN(60) { // of any class: samples of other classes are left out
			seen.Neighbours = append(seen.Neighbours, sample.Index(m.r.IntN(m.e.cache.Manifest.Len())))
		}
	}
	for _, i := range indices {
		if seen.Kind == score.Losses {
			seen.Loss = append(seen.Loss, loss(i, at.Epoch))
		} else {
			seen.Same, seen.Other = append(seen.Same, uint16(i%7)), append(seen.Other, uint16(i%3))
		}
	}
	o.twin.Observe(seen)
	m.e.Observe(o.number, seen)
}

// leaveImportant ends the job, after it has checked the job's status.
func (m *model) leaveImportant() {
	o := m.drawing
	if o == nil {
		return
	}
	m.note("the importance job ends")
	for _, j := range m.e.Status().Jobs {
		s := j.Importance
		if s == nil {
			continue
		}
		m.packed, m.cleaned = max(m.packed, s.PackagesWritten), max(m.cleaned, s.CleanedBytes)
		if s.Requested != s.HHits+s.LHits+s.HomophilyHits+s.Substituted+s.LogHits+s.SourceMisses || s.HBytes > o.twin.Config.Cache || s.ObservationsDropped != 0 {
			m.fail("with memory for %d bytes: %+v", o.twin.Config.Cache, *s)
		}
	}
	o.leave()
	m.drawing = nil
}

// batchesOf cuts one rank's part of an order: rank r has places r, r+W, ….
func batchesOf(order []sample.Index, rank, world, size int, dropLast bool) (out [][]sample.Index) {
	for first := rank; first < len(order); first += size * world {
		var batch []sample.Index
		for k := first; k < min(first+size*world, len(order)); k += world {
			batch = append(batch, order[k])
		}
		if len(batch) == size || !dropLast {
			out = append(out, batch)
		}
	}
	return out
}
