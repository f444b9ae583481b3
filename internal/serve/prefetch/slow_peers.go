package prefetch

import (
	"context"
	"maps"
	"time"

	"lcache/sample"
)

// peerSupply is what a peer brought, and what is due of it. Prefetcher.mu guards it.
type peerSupply struct {
	meter       // requests that were sent, and samples that came
	via   int64 // bytes that it read from the source
	due   int64 // bytes that were taken off the lists for it, and have not come
	taken int   // samples, while it is slow: one in 2 to the power of its level is requested
	left  int64 // samples that were read from the source because it was slow

	seen   int64     // bytes at the last look
	moved  time.Time // of the last look that found that it had brought something, or that nothing was requested
	ctx    context.Context
	giveUp context.CancelCauseFunc // ends ctx
}

// begin notes that a request to the peer begins. Its context ends with ctx, or if the peer brings nothing for too long. r.mu is held.
func (s *peerSupply) begin(ctx context.Context) context.Context {
	if s.n == 0 || s.ctx.Err() != nil {
		s.ctx, s.giveUp = context.WithCancelCause(ctx)
	}
	s.enter()
	return s.ctx
}

// end ends begin. r.mu is held.
func (s *peerSupply) end() {
	if s.leave(); s.n == 0 {
		s.giveUp(nil)
	}
}

// isStill reports whether a peer has brought nothing for a time, although something was requested. r.mu is held.
func (s *peerSupply) isStill(now time.Time, limit time.Duration) bool {
	if s.n == 0 || s.bytes != s.seen || s.moved.IsZero() {
		s.seen, s.moved = s.bytes, now
	}
	return now.Sub(s.moved) >= limit
}

// mostSupplies bounds the peers that are remembered. A peer may have another address after a restart.
const mostSupplies = 4096

// mostCounted bounds the samples on the lists whose peers are looked up at once.
const mostCounted = 4096

// supplyOf returns the supply of a peer. r.mu is held.
func (r *Prefetcher) supplyOf(peer string) *peerSupply {
	s := r.supplies[peer]
	if s == nil {
		if len(r.supplies) >= mostSupplies {
			maps.DeleteFunc(r.supplies, func(_ string, s *peerSupply) bool { return s.due == 0 && s.n == 0 })
		}
		s = &peerSupply{}
		r.supplies[peer] = s
	}
	return s
}

// isDue notes that a sample is due of a peer. r.mu is held.
func (r *Prefetcher) isDue(pf *prefetch, peer string) {
	pf.peer = peer
	r.supplyOf(peer).due += int64(pf.size)
}

// notDue ends isDue, if the sample is due of a peer. r.mu is held.
func (r *Prefetcher) notDue(pf *prefetch) {
	if pf.peer != "" {
		r.supplyOf(pf.peer).due -= int64(pf.size)
		pf.peer = ""
	}
}

// leaveToSource reports whether a sample that is due of a peer is read from the source instead, because the peer is slow. level is the level by which the
// sample's request was made before; 0: it is new. r.mu is held.
func (r *Prefetcher) leaveToSource(peer string, level int) bool {
	now := r.slow.level(peer)
	if now <= level {
		return false
	}
	s := r.supplyOf(peer)
	if s.taken++; s.taken%(1<<(now-level)) == 0 {
		return false
	}
	s.left++
	return true
}

// watchPeers looks for slow peers until Stop, and ends the requests to peers that bring nothing for as long as a read of the source may be silent. A
// request that makes progress has more time: a peer that reads a slow source for many machines needs it, and its samples are read once only if all wait.
func (r *Prefetcher) watchPeers() {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-every.C:
		}
		r.mu.Lock()
		for _, s := range r.supplies {
			if now := time.Now(); s.isStill(now, r.f.Options().SourceTimeout) {
				s.moved = now
				s.giveUp(context.DeadlineExceeded)
			}
		}
		peers, own, source := r.supplied()
		changed := map[string]bool{}
		for _, peer := range r.slow.look(time.Now(), peers, own, source) {
			changed[peer] = r.slow.level(peer) > 0
		}
		r.mu.Unlock()
		for peer, isSlow := range changed {
			if isSlow {
				r.cache.Logger.Warn("a machine of the cluster brings its samples at less than half of the rate of the others, so a part of them is read from the source", "peer", peer)
			} else {
				r.cache.Logger.Info("a machine of the cluster is no longer slow", "peer", peer)
			}
		}
		r.wakeUp(int(sample.FromPeer))
	}
}

// supplied returns what each supplier brought, and what is due of it. r.mu is held.
func (r *Prefetcher) supplied() (peers map[string]supply, own, source supply) {
	listed := map[string]int64{}
	counted := 0
	for _, c := range r.ranks {
		own.due += c.inFlight[sample.FromLog]
		source.due += c.inFlight[sample.FromSource]
		for _, k := range c.chunks {
			own.due += k.todoBytes[sample.FromLog]
			source.due += k.todoBytes[sample.FromSource]
			for _, pf := range k.todo[sample.FromPeer] {
				if counted++; counted > mostCounted {
					break
				}
				if peer, ok := r.cache.Peers.Holder(pf.index, pf.asked); ok {
					listed[peer] += int64(pf.size)
				}
			}
		}
	}
	peers = map[string]supply{}
	for peer, s := range r.supplies {
		w := s.work()
		peers[peer] = supply{brought: w.Bytes, viaSource: s.via, due: s.due + listed[peer], busy: w.Busy}
	}
	meters := r.work[AllJobs]
	for from, to := range map[sample.Origin]*supply{sample.FromLog: &own, sample.FromSource: &source} {
		w := meters[from].work()
		to.brought, to.busy = w.Bytes, w.Busy
	}
	return peers, own, source
}

// A PeerLoad says how a peer is asked.
type PeerLoad struct {
	IsSlow bool
	Left   int64 // samples that were read from the source because it was slow
}

// PeerLoads returns how each peer is asked that was asked so far, by address.
func (r *Prefetcher) PeerLoads() map[string]PeerLoad {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]PeerLoad, len(r.supplies))
	for peer, s := range r.supplies {
		all[peer] = PeerLoad{r.slow.level(peer) > 0, s.left}
	}
	return all
}
