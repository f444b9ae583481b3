// Package cluster knows which lcache processes of several machines belong together, and which of them share a dataset.
//
// A process is one [Member], for all datasets that it serves. Members find each other by gossip (memberlist: SWIM with Lifeguard), without a
// coordinator. Each says which caches it has; from that every member makes, for each dataset, the same [Roster] of peers, whose bins package homes
// assigns. A member that dies keeps its bins for a while, because a restart costs time only. Members that can't reach each other make different
// rosters: that costs speed, and never a wrong byte.
//
// One secret, the [Key], encrypts the gossip and signs the certificates by which members trust each other ([Identity]). Without a key a member
// opens ports on the loopback interface only.
//
// The package knows no samples and sends none. A process that is not in a cluster starts nothing of it.
package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/usage"
)

// Options of a Member.
type Options struct {
	Where Where
	Key   *Key // nil: the loopback interface only

	Certificates CertificateFiles // for the data port, instead of those that Key signs
	Insecure     bool             // the data port is not encrypted, and takes anybody

	Listen    string        // HOST, CIDR, or one of them with :PORT; "": every address of the machine, and the first free of Ports. Port 0: any
	Advertise string        // the address that others use; "": the one of Listen, or a private address of the machine
	Expect    int           // peers to wait for before the first roster; 0: unknown
	Grace     time.Duration // how long a lost peer keeps its bins; 0: DefaultGrace
	Host      string        // name of this machine, for people
	Program   string        // version of lcache
	Logger    *slog.Logger

	doubt time.Duration // how long two addresses may have one cache; 0: doubtTime
}

// DefaultGrace is how long a lost peer keeps its bins.
const DefaultGrace = 60 * time.Second

// Times of a Member.
const (
	joinSoon   = 2 * time.Second        // between attempts to reach a first member, all that are expected, or one that was lost just now
	joinLater  = 10 * time.Second       // between attempts afterwards: gossip alone does not heal a long partition
	joinMissed = 500 * time.Millisecond // between attempts to reach a member that does not answer at its address for samples
	missTime   = time.Minute            // for which that is tried
	leaveTime  = 2 * time.Second        // for the others to learn that this member leaves

	updateTime = 2 * time.Second // for an offer to be sent; then it may be lost
)

// A Member is this process in a cluster. All methods may be called concurrently.
type Member struct {
	o       Options
	id      string // its gossip name
	started time.Time
	gossip  *gossip
	trust   trust // nil: the data port is not encrypted
	stop    context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
	changed chan struct{} // holds a token if gossip or the offers changed
	offered chan struct{} // holds a token if the others don't know the offers yet
	updated chan struct{} // holds a token if memberlist has newer offers
	missed  chan struct{} // holds a token if a member does not answer

	mu     sync.Mutex // guards the fields that follow
	offers []Offer
	newer  chan struct{} // closed when there is a newer view; nil: nobody waits

	waitsNot atomic.Bool // the first rosters do not wait for expected members
	view     atomic.Pointer[View]
}

// Start opens the ports of a member and begins to look for the others. It returns before it has found any. Close must be called.
func Start(ctx context.Context, o Options) (*Member, error) {
	o.Grace, o.doubt = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.doubt, doubtTime)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	bind, err := parseListen(o.Listen, o.Key != nil)
	if err != nil {
		return nil, err
	}
	if o.Advertise, err = advertised(ctx, o.Advertise, bind, net.DefaultResolver); err != nil {
		return nil, err
	}
	if err := o.Where.check(ctx, net.DefaultResolver, o.Key != nil); err != nil {
		return nil, err
	}
	random := make([]byte, 8)
	rand.Read(random)
	m := &Member{o: o, id: hex.EncodeToString(random), started: time.Now(), changed: make(chan struct{}, 1), offered: make(chan struct{}, 1),
		updated: make(chan struct{}, 1), missed: make(chan struct{}, 1)}
	m.setView(&View{Datasets: map[DatasetKey]DatasetView{}})
	if m.trust, err = newTrust(&m.o, m.id, bind); err != nil {
		return nil, err
	}
	if err = listen(m, bind); err != nil {
		return nil, err
	}
	m.setView(&View{Listen: m.gossip.address(), Datasets: map[DatasetKey]DatasetView{}})
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.running.Go(func() { m.track(ctx) })
	m.running.Go(func() { m.reach(ctx) })
	m.running.Go(func() { m.sendOffers(ctx) })
	m.running.Go(func() { m.tellOffers(ctx) })
	m.running.Go(func() { m.reachMissed(ctx) })
	return m, nil
}

// WaitNoLonger makes the first rosters of the members that are there, without those that are expected.
func (m *Member) WaitNoLonger() {
	m.waitsNot.Store(true)
	signal(m.changed)
}

// Name returns the member's name, which is new with each start.
func (m *Member) Name() string { return m.id }

// Data returns the listener on the port that other members know for samples. Close closes it.
func (m *Member) Data() net.Listener { return m.gossip.data }

// Close leaves the cluster, and ends the member. It takes a few seconds at most.
func (m *Member) Close() (err error) {
	m.closing.Do(func() {
		m.stop()
		m.running.Wait()
		err = m.gossip.close()
	})
	return err
}

// Offer enters the part of one cache of this process in a dataset, or changes it. There is room for 10 offers.
func (m *Member) Offer(o Offer) error {
	m.mu.Lock()
	i := slices.IndexFunc(m.offers, func(other Offer) bool { return other.Dataset == o.Dataset && other.Cache == o.Cache })
	full := i < 0 && len(m.offers) == mostDatasets
	switch {
	case full:
	case i < 0:
		m.offers = append(m.offers, o)
	default:
		m.offers[i] = o
	}
	m.mu.Unlock()
	if full {
		return usage.Errorf("one process takes part in a cluster with at most %d caches and names of datasets: serve the others with a process of their own", mostDatasets)
	}
	m.offersChanged()
	return nil
}

// Withdraw ends the part of a cache in a dataset.
func (m *Member) Withdraw(d DatasetKey, c CacheID) {
	m.mu.Lock()
	m.offers = slices.DeleteFunc(m.offers, func(o Offer) bool { return o.Dataset == d && o.Cache == c })
	m.mu.Unlock()
	m.offersChanged()
}

func (m *Member) offersChanged() {
	signal(m.changed)
	signal(m.offered)
}

// signal puts a token into a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// announce returns this member's announcement.
func (m *Member) announce() *announcement {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &announcement{protocol: Protocol, dataPort: m.gossip.dataPort(), started: m.started, host: m.o.Host, program: m.o.Program, offers: slices.Clone(m.offers)}
}

// track makes rosters until ctx ends. It owns the trackers.
func (m *Member) track(ctx context.Context) {
	trackers := map[DatasetKey]*tracker{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		case <-timer.C:
		}
		now := time.Now()
		members := m.gossip.members()
		view := &View{Listen: m.gossip.address(), Members: len(members), Datasets: map[DatasetKey]DatasetView{}}
		next := now.Add(time.Minute)
		offers := m.announce().offers
		maps.DeleteFunc(trackers, func(d DatasetKey, _ *tracker) bool {
			return !slices.ContainsFunc(offers, func(o Offer) bool { return o.Dataset == d })
		})
		for _, o := range offers {
			t := trackers[o.Dataset]
			if t == nil {
				t = &tracker{self: m.id, expect: m.o.Expect, grace: m.o.Grace, doubt: m.o.doubt, began: now, peers: map[CacheID]*standing{}}
				trackers[o.Dataset] = t
			}
			if t.hurries = m.waitsNot.Load(); t.hurries && t.roster == nil {
				next = now.Add(settleFew)
			}
			before := t.roster
			roster, wake := t.update(now, sightings(members, o.Dataset))
			if !wake.IsZero() && wake.Before(next) {
				next = wake
			}
			if roster != before {
				m.o.Logger.Info("the cluster has a new roster", "peers", len(roster.Peers), "roster", fmt.Sprintf("%016x", roster.Hash()))
			}
			d := t.view(m.o.Expect, m.id)
			if was := m.view.Load().Datasets[o.Dataset]; d.State == Refused && was.State != Refused {
				m.o.Logger.Warn("another machine of the cluster says that it has this cache, so this one takes no part: one of them is a copy; run lcache rm on the copy, and ingest again")
			}
			view.Datasets[o.Dataset] = d
		}
		m.setView(view)
		timer.Reset(time.Until(next))
	}
}

// sightings returns the members that have a dataset.
func sightings(members []seenMember, d DatasetKey) (seen []sighting) {
	for _, member := range members {
		for _, o := range member.offers {
			if o.Dataset == d {
				seen = append(seen, sighting{o, member})
			}
		}
	}
	return seen
}

// sendOffers sends each change of the offers to the others, until ctx ends. It sends again what may be lost, more and more rarely: where many members have
// much to send, it takes gossip longer than updateTime, and each repetition would be one more message for all.
func (m *Member) sendOffers(ctx context.Context) {
	pause := updateTime
	again := time.NewTimer(pause)
	again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.offered:
			pause = updateTime
		case <-again.C:
			pause = min(2*pause, time.Minute)
		}
		if again.Stop(); !m.gossip.update() {
			again.Reset(pause)
		}
	}
}

// tellOffers brings each change of the offers to a few other members at once, until ctx ends. By gossip alone it takes up to a second.
func (m *Member) tellOffers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.updated:
			m.gossip.tell(ctx)
		}
	}
}

// Miss notes that a member does not answer at its address for samples. Its process may have died, which gossip notices after seconds. When it starts again it
// may know nobody. So this member tries to reach it twice a second, for a minute; less often while an address swallows packets.
func (m *Member) Miss(data string) {
	m.gossip.miss(data, time.Now())
	signal(m.missed)
}

// reachMissed connects to members that were missed, until ctx ends.
func (m *Member) reachMissed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.missed:
		}
		for m.gossip.reachMissed(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(joinMissed):
			}
		}
	}
}

// reach connects to members that gossip does not have, again and again until ctx ends.
func (m *Member) reach(ctx context.Context) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	began, joined := time.Now(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		if now := time.Now(); isJoinDue(len(m.gossip.members()), m.o.Expect, now.Sub(began), m.gossip.sinceLoss(now), now.Sub(joined)) {
			m.gossip.join(ctx, m.o.Where.addresses(ctx, net.DefaultResolver))
			joined = time.Now()
		}
		wait.Reset(joinSoon)
	}
}

// isJoinDue decides whether a member that knows n members, itself included, tries to reach others now. It tries often
//   - in its first minute, until it knows all that are expected: those that it knows may be commands that end soon, such as ingest;
//   - in the minute after it lost a member: that one may start again and know nobody.
func isJoinDue(n, expect int, sinceStart, sinceLoss, sinceJoin time.Duration) bool {
	isSoon := n < expect && sinceStart < time.Minute || sinceLoss < time.Minute
	return n <= 1 || isSoon || sinceJoin >= joinLater
}
