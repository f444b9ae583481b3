package cluster

import (
	"context"
	"slices"
	"strings"
	"time"
)

// A View is a snapshot of a member's knowledge. It never changes.
type View struct {
	Listen      string    // the address that others use for gossip
	Members     int       // processes that gossip has, this one included
	Refused     int       // messages of machines with another key or version
	LastRefusal string    // in words; "": none
	RefusedAt   time.Time // when it came
	Datasets    map[DatasetKey]DatasetView

	number int64 // of the snapshot
}

// A DatasetView is the part of a View about one dataset.
type DatasetView struct {
	State    State
	Expected int   // 0: unknown
	Changes  int64 // rosters made
	Roster   *Roster
	Peers    []PeerView // this member first, then by host
}

// A PeerView is a peer as a member sees it.
type PeerView struct {
	Offer
	Self    bool
	Member  string // its gossip name
	Host    string
	Address string // of its gossip
	Data    string // its address for samples, host:port; "": none
	Program string
	State   PeerState
	Since   time.Time // of State
	InUse   bool      // it is in the roster
}

// View returns the newest snapshot, with the refusals until now. It does not block.
func (m *Member) View() *View {
	v := *m.view.Load()
	v.Refused, v.LastRefusal, v.RefusedAt = m.gossip.refusals()
	return &v
}

// setView makes a view the newest one.
func (m *Member) setView(v *View) {
	if last := m.view.Load(); last != nil {
		v.number = last.number + 1
	}
	m.view.Store(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newer != nil {
		close(m.newer)
		m.newer = nil
	}
}

// Newer waits for a view that is newer than the given one; nil: for any. It returns nil when ctx ends.
func (m *Member) Newer(ctx context.Context, than *View) *View {
	for {
		m.mu.Lock()
		if m.newer == nil {
			m.newer = make(chan struct{})
		}
		newer := m.newer
		m.mu.Unlock()
		if v := m.View(); than == nil || v.number > than.number {
			return v
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return nil
		}
	}
}

// view describes the tracker. self is the gossip name of this member.
func (t *tracker) view(expected int, self string) DatasetView {
	v := DatasetView{State: t.state(), Expected: expected, Changes: t.changes, Roster: t.roster}
	add := func(p *standing) {
		v.Peers = append(v.Peers, PeerView{Offer: p.Offer, Self: p.name == self, Member: p.name, Host: p.host, Address: p.address, Data: p.data(), Program: p.program, State: p.state, Since: p.since,
			InUse: t.roster != nil && p.state != PeerRefused && slices.ContainsFunc(t.roster.Peers, func(r RosterPeer) bool { return r.ID == p.Cache })})
	}
	for _, p := range t.peers {
		add(p)
	}
	for i := range t.copies {
		add(&t.copies[i])
		if t.copies[i].name == self {
			v.State = Refused
		}
	}
	slices.SortFunc(v.Peers, func(a, b PeerView) int {
		if a.Self != b.Self {
			if a.Self {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Host+" "+a.Address, b.Host+" "+b.Address)
	})
	return v
}
