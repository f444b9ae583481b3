package launch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lcache/engine"
	"lcache/internal/cluster"
	"lcache/internal/cluster/homes"
	"lcache/internal/cluster/lister"
	"lcache/internal/cluster/peers"
	"lcache/internal/peer"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/status"
	"lcache/internal/usage"
	"lcache/sample"
)

// ClusterOptions of the process in a cluster.
type ClusterOptions struct {
	cluster.Options
	Dataset string        // the name of the dataset among the machines; "": it has none
	Late    time.Duration // without a byte of a peer after which its samples come from elsewhere; 0: peer.DefaultLate
	Memory  int64         // bytes for samples on their way between machines; 0: DefaultPeerMemory
}

// joined is this process as a member of a cluster. One is used by all servers of the process.
type joined struct {
	*cluster.Member
	o      ClusterOptions
	server *peer.Server
	lister sharedListing
}

// join makes this process a member of the cluster. Without options it returns nil, and nothing of a cluster runs.
func join(ctx context.Context, o *ClusterOptions) (*joined, error) {
	if o == nil {
		return nil, nil
	}
	m, err := cluster.Start(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	j := &joined{Member: m, o: *o}
	accept, _ := m.TLS()
	j.server = peer.Serve(m.Data(), peer.ServerOptions{TLS: accept, Refused: m.RefusedConnection, Stream: j.send, Large: j.o.largeSamples()})
	j.lister = sharedListing{&lister.Lister{Member: m, Server: j.server, Client: j.client(), Expect: o.Expect, Logger: o.Logger}}
	return j, nil
}

// Offer offers a cache or a name of this process. Its listings give way.
func (j *joined) Offer(o cluster.Offer) error { return j.lister.Offer(o) }

// leave ends join.
func (j *joined) leave() error {
	if j == nil {
		return nil
	}
	j.lister.Close()
	err := j.Close()
	j.server.Close()
	return err
}

// client returns the options of requests to other machines.
func (j *joined) client() peer.ClientOptions {
	_, connect := j.TLS()
	return peer.ClientOptions{TLS: connect, ID: j.Name(), Late: j.o.Late, Window: j.receive}
}

// sharedListing is the Lister of an ingest.
type sharedListing struct{ *lister.Lister }

func (s sharedListing) Await(ctx context.Context, properties, path string, fits func(uint64) error, waits func(string, int64)) (bool, error) {
	return s.Lister.Await(ctx, lister.KeyOf(properties), path, fits, waits)
}
func (s sharedListing) Progress(properties string, n int64) {
	s.Lister.Progress(lister.KeyOf(properties), n)
}
func (s sharedListing) Listed(properties, path string) error {
	return s.Lister.Listed(lister.KeyOf(properties), path)
}
func (s sharedListing) Withdraw(properties string) { s.Lister.Withdraw(lister.KeyOf(properties)) }

// link is one cache of this process in the cluster: it offers the cache to the other machines, answers them, and requests samples from them.
type link struct {
	*peers.Dataset
	of     *joined
	share  engine.Share
	name   string // of the dataset; "": it has none
	key    cluster.DatasetKey
	client *peer.Client
	log    *slog.Logger

	loads   func() map[string]engine.PeerLoad // how the engine asks each peer; nil: it does not. Set before begin
	offer   cluster.Offer                     // as the others know it; of begin, and then of Follow alone
	isAlone atomic.Bool                       // set by begin: it takes no part

	mu    sync.Mutex                // guards the field that follows
	peers map[string]*requestedFrom // by address

	stop    context.CancelFunc
	running sync.WaitGroup
	last    atomic.Pointer[status.Cluster] // the status at the end; nil: it has not ended
}

// mostAddresses bounds the peers that are counted. A peer may have another address after a restart.
const mostAddresses = 4 * homes.MaxPeers

// from returns the counts of a peer.
func (l *link) from(address string) *requestedFrom {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[address]
	if p == nil {
		if len(l.peers) >= mostAddresses {
			clear(l.peers)
		}
		p = &requestedFrom{}
		l.peers[address] = p
	}
	return p
}

// link connects an open cache, whose dataset may have a name. Nothing is offered before begin.
func (j *joined) link(s engine.Share, name string, logger *slog.Logger) *link {
	l := &link{of: j, share: s, name: name, key: datasetKey(s.Dataset), log: logger, peers: map[string]*requestedFrom{}, offer: cluster.Offer{Dataset: datasetKey(s.Dataset), Cache: s.Cache, Weight: cluster.WeightOf(s.Room, s.Bytes)}}
	l.Dataset = peers.New(peers.Options{Manifest: s.Manifest, Padded: s.Padded, Cache: s.Cache, Room: s.Room, Left: s.Left, Held: s.Held, Announce: l.announce, Logger: logger})
	l.client = peer.NewClient(s.Dataset, s.Manifest.Len(), j.client())
	return l
}

// begin offers the cache, and answers peers from then on.
func (l *link) begin(h peer.Home) error {
	if !l.of.server.Add(l.share.Dataset, h) {
		l.keepAlone()
		return usage.Errorf("this process serves another cache of the same dataset in the cluster: this one keeps its samples for itself")
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	if err := l.of.Offer(l.offer); err != nil { // nothing else changes the offer yet
		l.keepAlone()
		return err
	}
	l.running.Go(func() { l.Follow(ctx, l.of.Member, l.key) })
	l.running.Go(func() { l.welcome(ctx) })
	if l.name != "" {
		l.running.Go(func() { l.offerName(ctx) })
	}
	return nil
}

// welcome lets requests to a machine that has come back begin at once.
func (l *link) welcome(ctx context.Context) {
	var there map[cluster.CacheID]string // members, by cache. After lcache rm, an address may have two for a minute
	for v := l.of.Newer(ctx, nil); ctx.Err() == nil; v = l.of.Newer(ctx, v) {
		now := map[cluster.CacheID]string{}
		for _, p := range v.Datasets[l.key].Peers {
			if p.Self || p.Data == "" || p.State != cluster.PeerOK {
				continue
			}
			if now[p.Cache] = p.Member; there[p.Cache] != p.Member {
				l.client.Retry(p.Data)
				l.from(p.Data).cameBack(p.Data, l.log)
			}
		}
		there = now
	}
}

// keepAlone makes this machine keep what fits, as if it had no peers: it takes no part in the cluster. Nothing follows the rosters then.
func (l *link) keepAlone() {
	l.isAlone.Store(true)
	l.See(cluster.DatasetView{Roster: &cluster.Roster{Peers: []cluster.RosterPeer{{ID: l.share.Cache, Weight: cluster.WeightAll}}}})
}

// announce tells the others what this machine keeps.
func (l *link) announce(t homes.Threshold) {
	if l.isAlone.Load() {
		return
	}
	l.offer.Threshold, l.offer.Flags = t, l.offer.Flags|cluster.FlagKnown
	_ = l.of.Offer(l.offer) // begin has offered it, so there is room for it
}

// end ends link and begin. No request of a peer runs after it.
func (l *link) end() {
	last := l.status()
	l.last.Store(&last)
	l.of.Withdraw(l.key, l.share.Cache)
	if l.stop != nil {
		l.stop()
		l.running.Wait()
		l.of.server.Remove(l.share.Dataset)
	}
	l.client.Close()
}

// Fetch implements fetch.Peers.
func (l *link) Fetch(ctx context.Context, address string, indices []sample.Index, to fetch.Sink) error {
	p := l.from(address)
	missing, err := l.client.Fetch(ctx, address, indices, sink{to, p})
	if missing > 0 && (errors.Is(err, peer.ErrLate) || errors.Is(context.Cause(ctx), context.DeadlineExceeded)) {
		p.late.Add(int64(missing))
	}
	if p.answered(address, len(indices), missing, err, l.log) {
		l.of.Miss(address)
	}
	return err
}

// sink passes what a peer sends to a fetch.Sink, and counts it.
type sink struct {
	to   fetch.Sink
	from *requestedFrom
}

func arrival(p peer.Piece) fetch.Arrival {
	return fetch.Arrival{Index: p.Index, Absent: p.Why.IsAbsent(), FromSource: p.Why == peer.FromSource, Offset: p.Offset, Length: p.Length, Sum: p.Sum}
}

func (s sink) Room(p peer.Piece) []byte { return s.to.Room(arrival(p)) }

func (s sink) Came(p peer.Piece) {
	if p.Why.IsAbsent() {
		s.from.absent.Add(1)
	}
	s.from.bytes.Add(int64(p.Length))
	s.to.Came(arrival(p))
}

func datasetKey(f sample.Fingerprint) cluster.DatasetKey { return cluster.DatasetKey(f[:8]) }

// Times that a start waits for the other machines. What is read before they have agreed comes from the source, and is not kept.
const (
	meetSoon = 5 * time.Second  // for machines that are there
	meetAll  = 20 * time.Second // for the expected number of machines
	meetFill = 90 * time.Second // of an ingest: longer than the first roster takes at most
)

// await waits until the machines have agreed who keeps what, but not for long.
func (l *link) await(ctx context.Context) {
	limit := meetSoon
	if l.of.o.Expect > 0 {
		limit = meetAll
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.Ready():
	case <-ctx.Done():
	case <-t.C:
		l.log.Warn("the machines of the cluster have not agreed yet; those that are there begin", "waited", limit, "expected", l.of.o.Expect, "members", l.of.View().Members, "looked_at", l.of.o.Where.String())
		l.of.WaitNoLonger()
	}
}

// awaitRoster waits until the machines have agreed who keeps what, because an ingest fills nothing before. After limit it goes on without those that have
// not announced what they keep.
func (l *link) awaitRoster(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	}
	if l.machines() == 0 {
		return fmt.Errorf("the machines of the cluster have not agreed who keeps what within %v: look at lcache cluster on a machine that serves, and run ingest again", limit)
	}
	l.log.Warn("some machines of the cluster have not said what they keep; the others fill their caches", "waited", limit, "host", l.undecided())
	return nil
}

// undecided returns the hosts of the peers that have not announced what they keep.
func (l *link) undecided() (hosts []string) {
	for _, p := range l.of.View().Datasets[l.key].Peers {
		if p.InUse && !p.Self && p.State == cluster.PeerOK && !p.IsKnown() {
			hosts = append(hosts, fmt.Sprintf("%s (%s)", usage.Name(p.Host), p.Address))
		}
	}
	return hosts
}

// machines returns the number of peers in the roster.
func (l *link) machines() int {
	if r := l.of.View().Datasets[l.key].Roster; r != nil {
		return len(r.Peers)
	}
	return 0
}

// status describes the cluster for the status document.
func (l *link) status() status.Cluster {
	if last := l.last.Load(); last != nil {
		return *last
	}
	v, isAlone := l.of.View(), l.isAlone.Load()
	if isAlone {
		v.Datasets = nil // the member has another cache of the dataset, or none
	}
	c := describe(v, l.key, time.Now())
	if isAlone {
		c.State = string(cluster.Alone)
	}
	c.Label = l.of.o.Key.Label()
	if l.name != "" {
		c.Dataset, c.Fingerprint, c.Others = l.name, l.fingerprint(), l.others(v)
	}
	unassigned, isCrowded := l.Unassigned()
	c.Unassigned, c.IsCrowded = int64(unassigned), isCrowded
	sent, parcels := map[string]uint64{}, map[string]uint64{}
	for _, one := range l.of.server.Consumers(l.share.Dataset) {
		sent[one.Member] += one.Bytes
		parcels[one.Member] += one.Sent
	}
	var loads map[string]engine.PeerLoad
	if l.loads != nil {
		loads = l.loads()
	}
	for i, p := range v.Datasets[l.key].Peers {
		to := &c.Peers[i]
		to.Copies, to.KeepBytes = p.Threshold.Float(), int64(l.Kept(p.Cache, p.Threshold))
		to.OutBytes, to.OutParcels = int64(sent[p.Member]), int64(parcels[p.Member])
		if p.Self || p.Data == "" {
			continue
		}
		from := l.from(p.Data)
		to.InBytes, to.LateSamples, to.AbsentSamples = from.bytes.Load(), from.late.Load(), from.absent.Load()
		to.SlowSamples = loads[p.Data].Left
		switch {
		case p.State != cluster.PeerOK:
		case l.IsAside(p.Data):
			to.State = "aside"
		case from.isLate.Load():
			to.State = "late"
		case loads[p.Data].IsSlow:
			to.State = "slow"
		}
	}
	return c
}

// describe is the part of the status document about one dataset.
func describe(v *cluster.View, key cluster.DatasetKey, now time.Time) status.Cluster {
	d := v.Datasets[key]
	c := status.Cluster{State: string(d.State), Listen: v.Listen, Expected: d.Expected, Members: v.Members, Rosters: d.Changes, Refused: int64(v.Refused), Reason: v.LastRefusal}
	if v.Refused > 0 {
		c.ReasonSeconds = max(0, now.Sub(v.RefusedAt).Seconds())
	}
	if c.State == "" { // the member has not looked yet
		c.State = string(cluster.Forming)
	}
	if d.Roster != nil {
		c.Roster = fmt.Sprintf("%016x", d.Roster.Hash())
	}
	for _, p := range d.Peers {
		layout := "static"
		if p.Flags&cluster.FlagLog != 0 {
			layout = "log"
		}
		c.Peers = append(c.Peers, status.ClusterPeer{ID: hex.EncodeToString(p.Cache[:]), Member: p.Member, Host: p.Host, Address: p.Address, Version: p.Program, State: string(p.State),
			StateSeconds: max(0, now.Sub(p.Since).Seconds()), Layout: layout, InRoster: p.InUse, RoomShare: float64(p.Weight) / cluster.WeightAll})
	}
	return c
}
