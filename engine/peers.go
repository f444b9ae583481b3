package engine

import (
	"context"
	"sync"

	"lcache/internal/peer"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/prefetch"
	"lcache/sample"
)

// Peers are the other machines that serve the dataset.
type Peers interface {
	fetch.Peers
	Keeps(sample.Index) bool  // reports whether this machine keeps a sample; it may change, and takes no locks
	IsHome(sample.Index) bool // reports whether this machine keeps a sample before all others, and so reads the source for them
}

// A PeerLoad says how a peer is asked.
type PeerLoad = prefetch.PeerLoad

// PeerLoads returns how each peer is asked that was asked so far, by address.
func (e *Engine) PeerLoads() map[string]PeerLoad { return e.prefetcher.PeerLoads() }

// fetchPeers returns the peers that the fetcher asks; nil: none.
func (e *Engine) fetchPeers() fetch.Peers {
	if e.peers == nil {
		return nil
	}
	return e.peers
}

// homeBytes returns the part of PeerMemory into which samples are read for other machines. The rest is for samples on their way.
func (o *Options) homeBytes() int {
	if o.Join == nil {
		return 0
	}
	return int(max(o.PeerMemory/HomeShare, leastHomeBytes))
}

// HomeShare is the part of PeerMemory, one in HomeShare bytes, into which samples are read for other machines.
const HomeShare = 4

// leastHomeBytes has room for one read of several samples.
const leastHomeBytes = 1 << 20

// Home returns the part of the engine that answers peers.
func (e *Engine) Home() peer.Home { return home{e} }

// home brings samples for peers: from memory and the log, and if this machine is the home of a sample, also from the source. It requests nothing from other
// machines, so that no request is passed on. It reads into memory of its own (homeBytes).
type home struct{ e *Engine }

func (h home) Samples() int            { return h.e.cache.Manifest.Len() }
func (h home) Size(i sample.Index) int { return int(h.e.cache.Manifest.Size(i)) }
func (h home) Work() (uint64, bool)    { return h.e.fetcher.WorkForPeers() }
func (h home) Manifest() []byte        { return nil }

// homeReads is the number of samples of one request that are read at once, apart from neighbours in the log.
const homeReads = 16

// Bring implements peer.Home.
func (h home) Bring(ctx context.Context, indices []sample.Index, to func(peer.Brought)) {
	ctx = fetch.ForPeers(ctx)
	var mu sync.Mutex
	over := false
	bring := func(b peer.Brought) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			to(b)
		}
	}
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}()
	var reads sync.WaitGroup
	turn := make(chan struct{}, homeReads)
	for _, i := range h.fromLog(ctx, indices, bring) {
		index := indices[i]
		if h.e.cache.Locations.Get(index) == 0 && !h.e.peers.IsHome(index) {
			bring(peer.Brought{Index: index, Why: peer.NotKept})
			continue
		}
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		reads.Go(func() {
			defer func() { <-turn }()
			h.one(ctx, index, bring)
		})
	}
	reads.Wait()
}

// fromLog brings the samples that the log has, neighbours in one read. It returns the positions of the others.
func (h home) fromLog(ctx context.Context, indices []sample.Index, bring func(peer.Brought)) (rest []int) {
	c := h.e.cache
	if c.Form != nil { // samples are unpacked one by one
		for i := range indices {
			rest = append(rest, i)
		}
		return rest
	}
	return h.e.fetcher.Together(ctx, indices, func(samples []fetch.Stored) (wrong []int) {
		for _, s := range samples {
			index := indices[s.I]
			if sum, known := c.Sums.Get(index); known && sample.Sum(s.Data) == sum {
				bring(peer.Brought{Index: index, Sum: sum, Bytes: s.Data})
			} else {
				wrong = append(wrong, s.I)
			}
		}
		return wrong
	})
}

// one brings one sample. A read that has begun goes on if the peer does not wait for it any longer, so that the sample is kept and need not be read again.
func (h home) one(ctx context.Context, index sample.Index, bring func(peer.Brought)) {
	if h.Size(index) == 0 {
		bring(peer.Brought{Index: index, Sum: sample.Sum(nil)})
		return
	}
	done := make(chan struct{})
	h.e.homeReads.Go(func() {
		defer close(done)
		limited, cancel := context.WithTimeout(fetch.ForPeers(h.e.ctx), h.e.fetcher.Options().SourceTimeout)
		defer cancel()
		extents, got, err := h.e.fetcher.FetchAll(limited, []sample.Index{index})
		if err != nil {
			if ctx.Err() == nil {
				bring(peer.Brought{Index: index, Why: peer.SourceFailed})
			}
			return
		}
		sum, _ := h.e.cache.Sums.Get(index) // known, because the bytes were compared with it
		b := peer.Brought{Index: index, Sum: sum, Bytes: got[0].Data}
		if got[0].From == sample.FromSource {
			b.Why = peer.FromSource
		}
		bring(b)
		for _, x := range extents {
			h.e.staging.Drop(x)
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}
