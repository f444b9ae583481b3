package engine

import (
	"slices"
	"sync"
	"time"

	"lcache/deliver"
	"lcache/importance"
	"lcache/offheap"
	"lcache/sample"
)

// A commonMemory keeps the important samples of several jobs together: as many bytes as their caches have, by what each sample is worth to all of them (docs/adr/0033-nodes.md). It takes over from the jobs' own
// policies while two jobs or more use next-use or the paper's policy; nodes stay with their job. A sample that one job brought is a hit for the others.
type commonMemory struct {
	lockedBytes // its mu guards the fields that follow, too; taken after a highMemory's
	policy      *importance.Valued
	capacity    int64
}

func (e *Engine) newCommonMemory() (*commonMemory, error) {
	policy, err := importance.NewValued(e.cache.Manifest.Len(), 0)
	if err != nil {
		return nil, err
	}
	held, err := newSampleBytes(e.cache)
	if err != nil {
		policy.Close()
		return nil, err
	}
	return &commonMemory{lockedBytes: lockedBytes{held: held}, policy: policy}, nil
}

func (c *commonMemory) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy.Close()
	c.held.close()
}

// get uses a sample, and reports whether it is kept.
func (c *commonMemory) get(index sample.Index) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, kind := c.policy.Get(index, nil)
	return kind == importance.Hit
}

// offer keeps a sample if it is worth more than what has to go for it.
func (c *commonMemory) offer(index sample.Index, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held.closed() {
		return
	}
	keep, drop := c.policy.Offer(index, c.held.size(index))
	for _, gone := range drop {
		c.held.free(gone)
	}
	if keep {
		c.held.keep(index, data)
	}
}

// decide changes the memory, and what samples are worth; nil: that stays.
func (c *commonMemory) decide(capacity int64, values []float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy.Begin(0, values, nil)
	c.capacity = capacity
	for _, gone := range c.policy.Resize(capacity) {
		c.held.free(gone)
	}
}

// mostWorth lists all n samples by what they are worth to all jobs, most first. The caller frees the list by offheap.Free.
func (c *commonMemory) mostWorth(n int) ([]sample.Index, error) {
	worth, err := offheap.MakeDense[float32](n)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(worth)
	c.mu.RLock()
	c.policy.Values(worth)
	c.mu.RUnlock()
	return importance.MostUsed(worth)
}

// partOf is the part of the bytes here of a job that gives so much of the memory.
func (c *commonMemory) partOf(share int64) int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return int64(float64(c.held.taken) * (float64(share) / float64(max(c.capacity, 1))))
}

// rehearsal copies what is kept, with a job's nodes beside it.
func (c *commonMemory) rehearsal(pair *importance.Homophily) (*importance.Rehearsal, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return importance.NewRehearsal(pair.Beside(c.policy), c.held.size)
}

// together is what the job shares with others; nil: nothing.
func (h *highMemory) together() *commonMemory {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.common
}

// share is how much of a job's cache is for important samples. h.mu is held.
func (h *highMemory) share() int64 {
	if h.pair == nil {
		return h.total
	}
	return int64(float64(h.total) * h.pair.Ratio())
}

// join gives the important samples to what jobs share, or, of nil, takes them back.
func (h *highMemory) join(c *commonMemory) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.common == c || h.held.closed() {
		return
	}
	before := h.common
	h.common = c
	if c == nil {
		h.inner().Resize(h.share())
		if h.e.ctx.Err() == nil {
			h.takeBack(before)
		}
		return
	}
	for _, index := range h.inner().Resize(0) {
		if data := make([]byte, h.e.cache.Manifest.Size(index)); h.held.copy(index, data) {
			h.held.free(index)
			c.offer(index, data)
		}
	}
}

// takeBack keeps what the job's own policy wants of what was shared. h.mu is held.
func (h *highMemory) takeBack(c *commonMemory) {
	for i := range h.e.cache.Manifest.Len() {
		index := sample.Index(i)
		if !c.Has(index) || h.policy.Has(index) {
			continue
		}
		keep, drop := h.policy.Offer(index, h.size(index))
		for _, gone := range drop {
			h.held.free(gone)
		}
		if data := make([]byte, h.e.cache.Manifest.Size(index)); keep && c.Copy(index, data) {
			h.held.keep(index, data)
		}
	}
}

// memorySharing is what jobs with importance know of each other.
type memorySharing struct {
	mu     sync.Mutex // guards the fields that follow; taken after importing and before every other lock
	common *commonMemory
	jobs   map[*important]*sharer
}

// sharer is what a job says of samples.
type sharer struct {
	ranks  []float32     // outside Go's heap; nil: not known yet
	waited time.Duration // for the source in its last epoch
	all    time.Duration // for the source, so far
}

// shares reports whether a job's important samples may lie together with those of others: LRU and MinIO are there to compare with.
func (p *important) shares() bool { return p.config.Policy == "next-use" || p.config.Policy == "paper" }

// sharers lists the jobs that would share, in the order of their names. A job that nobody is connected for has no say.
func (e *Engine) sharers() (list []*important) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.states {
		if p.shares() && (p.j.token == "" || p.j.users > 0) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *important) int {
		if a.config.Name < b.config.Name {
			return -1
		}
		return 1
	})
	return list
}

// shareMemory decides which jobs keep their important samples together, and by what. ended is the job at whose boundary this is; nil: at none. Only workers call it, and who makes or ends one.
func (e *Engine) shareMemory(ended *important) {
	s := &e.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	list := e.sharers()
	for p, said := range s.jobs {
		if !slices.Contains(list, p) {
			p.high.join(nil)
			offheap.Free(said.ranks)
			delete(s.jobs, p)
		}
	}
	if len(list) < 2 {
		s.dissolve(e)
		return
	}
	if s.common == nil {
		c, err := e.newCommonMemory()
		if err != nil {
			e.cache.Logger.Warn("jobs keep their important samples apart", "err", err)
			return
		}
		s.common, s.jobs = c, map[*important]*sharer{}
		e.holdTogether(c)
	}
	e.decideTogether(list, ended)
	for _, p := range list {
		p.high.join(s.common)
	}
}

// dissolve gives the important samples back to the jobs. s.mu is held.
func (s *memorySharing) dissolve(e *Engine) {
	if s.common == nil {
		return
	}
	for p, said := range s.jobs {
		p.high.join(nil)
		offheap.Free(said.ranks)
	}
	e.holdTogether(nil)
	s.common.close()
	s.common, s.jobs = nil, nil
}

// decideTogether ranks all samples by what they are worth to the jobs. e.shared.mu is held.
func (e *Engine) decideTogether(list []*important, ended *important) {
	s := &e.shared
	var waited []time.Duration
	var capacity int64
	for _, p := range list {
		said := s.jobs[p]
		if said == nil {
			said = &sharer{all: p.waitedForSource()}
			s.jobs[p] = said
		}
		if p == ended || said.ranks == nil {
			p.rank(said)
		}
		if p == ended {
			all := p.waitedForSource()
			said.waited, said.all = all-said.all, all
		}
		waited = append(waited, said.waited)
		p.high.mu.RLock()
		capacity += p.high.share()
		p.high.mu.RUnlock()
	}
	jobs := make([]importance.JobRanks, len(list))
	for k, weight := range importance.JobWeights(waited) {
		jobs[k] = importance.JobRanks{Ranks: s.jobs[list[k]].ranks, Weight: weight}
	}
	values, err := offheap.MakeDense[float64](e.cache.Manifest.Len())
	if err != nil {
		s.common.decide(capacity, nil)
		return
	}
	defer offheap.Free(values)
	importance.Together(jobs, values)
	s.common.decide(capacity, values)
}

// rank notes how the job ranks samples, if anything was observed.
func (p *important) rank(said *sharer) {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	if p.state.Closed() || p.state.Activity().LastObserved < 0 {
		return
	}
	values, err := p.state.Values()
	if err != nil {
		return
	}
	defer offheap.Free(values)
	if said.ranks == nil {
		if said.ranks, err = offheap.MakeDense[float32](len(values)); err != nil {
			return
		}
	}
	importance.Ranks(values, said.ranks)
}

// waitedForSource is how long all reads from the source for the job have taken.
func (p *important) waitedForSource() time.Duration {
	return time.Duration(p.e.deliver.StatsOf(&deliver.Position{Job: p.j.number}).Source.Time.Load())
}

// unshare takes out a job that ends.
func (e *Engine) unshare(p *important) {
	s := &e.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.jobs[p]
	if said == nil {
		return
	}
	p.high.mu.Lock()
	p.high.common = nil
	p.high.mu.Unlock()
	offheap.Free(said.ranks)
	if delete(s.jobs, p); len(s.jobs) < 2 {
		s.dissolve(e)
	}
}
