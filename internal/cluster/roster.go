package cluster

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/zeebo/xxh3"
)

// A Roster is the set of peers that share the bins of one dataset. It never changes: when a peer comes or goes, there is another Roster. All peers
// that see the same members make equal rosters.
type Roster struct {
	Peers []RosterPeer // by ID
}

// A RosterPeer is a peer of a Roster.
type RosterPeer struct {
	ID     CacheID
	Weight uint16 // as in Offer; above 0
}

// Hash is equal for equal rosters.
func (r *Roster) Hash() uint64 {
	var b []byte
	for _, p := range r.Peers {
		b = binary.LittleEndian.AppendUint16(append(b, p.ID[:]...), p.Weight)
	}
	return xxh3.Hash(b)
}

// Times of rosters.
const (
	// settleFew and settleMany are how long the members must stay the same before a new roster is made: many machines don't start in the same second.
	settleFew, settleMany = 2 * time.Second, 5 * time.Second
	manyPeers             = 16
	// patience bounds the wait for members that keep coming and going, in settle times.
	patience = 10
	// firstWait is how long the first roster waits for the peers that are expected.
	firstWait = 60 * time.Second
	// doubtTime is how long two addresses may have one cache before one of them counts as a copy. A process that was killed and came back at another
	// address is no copy, and gossip has both until it knows of the death: 9 s with 64 members.
	doubtTime = 15 * time.Second
)

// PeerState is how one member sees a peer.
type PeerState string

// The states of peers.
const (
	PeerOK      PeerState = "ok"
	PeerLost    PeerState = "lost"    // not seen any longer; its bins stay its own during the grace, unless its machine has another cache now
	PeerRefused PeerState = "refused" // its cache is a copy of another peer's cache
)

// A sighting is an offer of a member that gossip has now.
type sighting struct {
	Offer
	seenMember
}

// A standing is a peer's last sighting and its state.
type standing struct {
	sighting // the last one
	state    PeerState
	since    time.Time // of state
}

// A tracker decides which peers share one dataset. It is pure: it changes by update only, and the caller brings the time.
type tracker struct {
	self   string        // gossip name of this member
	expect int           // peers that the first roster waits for; 0: unknown
	grace  time.Duration // how long a lost peer keeps its bins
	began  time.Time
	doubt  time.Duration // how long two addresses may have one cache

	hurries bool // the first roster does not wait for expected peers

	peers   map[CacheID]*standing
	twins   map[CacheID]time.Time // since when gossip has several addresses of a cache
	copies  []standing            // refused
	roster  *Roster               // nil: not yet
	changes int64                 // rosters made
	target  []RosterPeer
	changed time.Time // when target changed
	pending time.Time // since when target differs from the roster; zero: it does not
}

// update takes what gossip has at a time, and returns the roster and when to call update again at the latest; zero: when gossip changes.
func (t *tracker) update(now time.Time, seen []sighting) (roster *Roster, wake time.Time) {
	t.see(now, seen)
	earliest := func(at time.Time) {
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	for _, since := range t.twins {
		if ends := since.Add(t.doubt); now.Before(ends) {
			earliest(ends)
		}
	}
	var target []RosterPeer
	present := 0
	for _, id := range slices.SortedFunc(maps.Keys(t.peers), func(a, b CacheID) int { return bytes.Compare(a[:], b[:]) }) {
		p := t.peers[id]
		if p.state == PeerLost {
			gone := p.since.Add(t.grace)
			if !now.Before(gone) || t.isReplaced(p) {
				delete(t.peers, id)
				continue
			}
			earliest(gone)
		}
		if p.Weight == 0 || p.Flags&FlagLeaving != 0 {
			continue
		}
		if p.state == PeerOK {
			present++
		}
		target = append(target, RosterPeer{id, p.Weight})
	}
	if !slices.Equal(target, t.target) || t.changed.IsZero() {
		t.target, t.changed = target, now
	}
	if t.roster != nil && slices.Equal(target, t.roster.Peers) {
		t.pending = time.Time{}
		return t.roster, wake
	}
	if t.pending.IsZero() {
		t.pending = now
	}
	if due := t.due(present); now.Before(due) {
		earliest(due)
	} else if len(target) > 0 || t.roster != nil {
		t.roster, t.pending = &Roster{target}, time.Time{}
		t.changes++
	}
	return t.roster, wake
}

// isReplaced reports whether a new process has the address of a lost peer, and another cache.
func (t *tracker) isReplaced(lost *standing) bool {
	for _, p := range t.peers {
		if p.state == PeerOK && p.Weight > 0 && p.name != lost.name && p.address == lost.address && p.host == lost.host {
			return true
		}
	}
	return false
}

// due returns when the roster becomes the target.
func (t *tracker) due(present int) time.Time {
	settle := settleFew
	if len(t.target) > manyPeers {
		settle = settleMany
	}
	settled := t.changed.Add(settle)
	if t.roster != nil {
		return earlier(settled, t.pending.Add(patience*settle))
	}
	switch {
	case t.expect > 0 && present >= t.expect:
		return t.changed
	case t.expect > 0 && !t.hurries:
		return t.began.Add(firstWait)
	}
	return earlier(settled, t.began.Add(firstWait))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// see enters what gossip has.
func (t *tracker) see(now time.Time, seen []sighting) {
	here := map[CacheID]sighting{}
	copies, twins := t.copies, t.twins
	t.copies, t.twins = nil, map[CacheID]time.Time{}
	for _, s := range seen {
		other, twice := here[s.Cache]
		if !twice {
			here[s.Cache] = s
			continue
		}
		isTwin := other.address != s.address // else one of them is the process before a restart, which gossip still has
		if began, known := twins[s.Cache]; isTwin && known {
			t.twins[s.Cache] = began
		} else if isTwin {
			t.twins[s.Cache] = now
		}
		isInDoubt := isTwin && now.Before(t.twins[s.Cache].Add(t.doubt))
		kept, out := t.choose(other, s, isInDoubt)
		here[s.Cache] = kept
		if !isTwin || isInDoubt {
			continue
		}
		since := now
		if i := slices.IndexFunc(copies, func(c standing) bool { return c.name == out.name }); i >= 0 {
			since = copies[i].since
		}
		t.copies = append(t.copies, standing{out, PeerRefused, since})
	}
	for id, s := range here {
		p := t.peers[id]
		if p == nil {
			p = &standing{since: now, state: PeerOK}
			t.peers[id] = p
		}
		if p.state != PeerOK {
			p.state, p.since = PeerOK, now
		}
		p.sighting = s
	}
	for id, p := range t.peers {
		if _, ok := here[id]; !ok && p.state == PeerOK {
			p.state, p.since = PeerLost, now
		}
	}
}

// choose returns which of two members with the same cache is believed: at one address the one that started later, which took the place of the other. At
// two addresses one has a copy of the other's disk: the one at the address of the peer that is known is believed, else the one that started earlier. While
// that is in doubt, because one of them may be dead, a member believes itself.
func (t *tracker) choose(a, b sighting, isInDoubt bool) (kept, out sighting) {
	isOwn := a.name == t.self || b.name == t.self // a member would always know itself first
	if isOwn && isInDoubt {
		if a.name == t.self {
			return a, b
		}
		return b, a
	}
	if known := t.peers[a.Cache]; known != nil && a.address != b.address && !isOwn {
		switch known.address {
		case a.address:
			return a, b
		case b.address:
			return b, a
		}
	}
	isEarlier := a.started.Before(b.started) || a.started.Equal(b.started) && a.name < b.name
	if isEarlier == (a.address == b.address) {
		return b, a
	}
	return a, b
}

// A State is how a cluster stands for one dataset.
type State string

// The states of a dataset.
const (
	Forming  State = "forming"  // no roster yet
	Alone    State = "alone"    // this machine is the only peer
	OK       State = "ok"       // all peers of the roster are there
	Refused  State = "refused"  // another machine says that it has this member's cache
	Degraded State = "degraded" // a peer of the roster is lost, or fewer came than were expected
)

// state judges the roster.
func (t *tracker) state() State {
	switch {
	case t.roster == nil:
		return Forming
	case len(t.peers) <= 1 && len(t.roster.Peers) <= 1:
		return Alone
	}
	for _, r := range t.roster.Peers {
		if p := t.peers[r.ID]; p == nil || p.state != PeerOK {
			return Degraded
		}
	}
	if len(t.roster.Peers) < t.expect {
		return Degraded
	}
	return OK
}
