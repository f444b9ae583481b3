package cluster

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/errgroup"

	"lcache/internal/cluster/homes"
)

// gossip is the memberlist of a Member. It signals each change to the member. It keeps a copy of each live node, because memberlist changes its own.
type gossip struct {
	member *Member
	list   *memberlist.Memberlist
	data   net.Listener // for samples; set before list
	log    *slog.Logger

	mu      sync.Mutex
	seen    map[string]seenMember // by gossip name; live ones
	lost    map[string]lostMember // by address; members that were seen once
	missed  map[string]time.Time  // by address: since when the member does not answer
	refused int                   // messages
	reason  string                // of the last one
	last    time.Time             // when that was
	warned  map[string]time.Time  // when a refusal was last logged, by kind
}

// seenMember is a live member. It is not changed.
type seenMember struct {
	name    string
	address string // of its gossip, host:port
	*announcement
}

// data returns the member's address for samples; "": it has none.
func (s *seenMember) data() string {
	host, _, err := net.SplitHostPort(s.address)
	if err != nil || s.dataPort == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(s.dataPort)))
}

// lostMember is when a member was lost, and when it was last tried again.
type lostMember struct{ since, tried time.Time }

// Bounds of remembered addresses.
const (
	rememberTime = 24 * time.Hour // for which the address of a lost member is tried
	mostLost     = 256            // addresses of lost members; the oldest are forgotten first
	mostTold     = 8              // members that learn this one's newest offers at once
	mostTried    = 64             // addresses that are tried at once, and lost ones in one round: each may take TCPTimeout if it swallows packets
)

// address returns what others use to reach this member.
func (g *gossip) address() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[g.member.id].address // it is there since the member listens
}

// dataPort returns the port for samples.
func (g *gossip) dataPort() uint16 { return uint16(g.data.Addr().(*net.TCPAddr).Port) }

// members returns the live members, this one included.
func (g *gossip) members() (all []seenMember) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range maps.Values(g.seen) {
		if s.name == g.member.id {
			s.announcement = g.member.announce() // the newest
		}
		all = append(all, s)
	}
	return all
}

// refusals returns how many messages were refused, and why and when the last one was.
func (g *gossip) refusals() (n int, reason string, last time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused, g.reason, g.last
}

// join connects to the given addresses and to lost members. It skips addresses of live members.
func (g *gossip) join(ctx context.Context, addresses []string) {
	live := map[string]bool{}
	g.mu.Lock()
	for _, s := range g.seen {
		live[s.address] = true
	}
	addresses = append(addresses, g.nextLost(live, time.Now())...)
	g.mu.Unlock()
	addresses = slices.DeleteFunc(addresses, func(a string) bool {
		isKnown := live[a]
		live[a] = true
		return isKnown
	})
	for a, err := range g.exchange(ctx, addresses) {
		g.judge(a, err)
	}
}

// exchange sends what this member knows to others, and gets what they know. It asks all at once, and returns the errors by address.
func (g *gossip) exchange(ctx context.Context, addresses []string) map[string]error {
	var group errgroup.Group
	var mu sync.Mutex
	errs := map[string]error{}
	group.SetLimit(mostTried)
	for _, a := range addresses {
		group.Go(func() error {
			err := ctx.Err()
			if err == nil {
				_, err = g.list.Join([]string{a})
			}
			if err != nil {
				mu.Lock()
				errs[a] = err
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // no error is returned
	return errs
}

// tell brings this member's offers to some others.
func (g *gossip) tell(ctx context.Context) {
	var others []string
	g.mu.Lock()
	for _, s := range g.seen {
		if s.name != g.member.id {
			others = append(others, s.address)
		}
	}
	g.mu.Unlock()
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	g.exchange(ctx, others[:min(len(others), mostTold)]) // by gossip the others learn them, too
}

// miss notes that the member with an address for samples does not answer.
func (g *gossip) miss(data string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.seen {
		if s.data() == data && s.name != g.member.id {
			g.missed[s.address] = now
		}
	}
}

// reachMissed tries all members that do not answer once, and reports whether some still don't.
func (g *gossip) reachMissed(ctx context.Context) bool {
	g.mu.Lock()
	maps.DeleteFunc(g.missed, func(_ string, since time.Time) bool { return time.Since(since) > missTime })
	missed := maps.Clone(g.missed)
	g.mu.Unlock()
	errs := g.exchange(ctx, slices.Collect(maps.Keys(missed)))
	g.mu.Lock()
	defer g.mu.Unlock()
	for a, since := range missed {
		if errs[a] == nil && g.missed[a].Equal(since) { // else it was missed again meanwhile
			delete(g.missed, a)
		}
	}
	return len(g.missed) > 0
}

// sinceLoss returns how long ago the last member was lost that has not come back.
func (g *gossip) sinceLoss(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	shortest := rememberTime
	for _, l := range g.lost {
		shortest = min(shortest, now.Sub(l.since))
	}
	return shortest
}

// nextLost returns the addresses of lost members to try in this round: those that were tried longest ago. g.mu is held.
func (g *gossip) nextLost(live map[string]bool, now time.Time) []string {
	maps.DeleteFunc(g.lost, func(a string, l lostMember) bool { return live[a] || now.Sub(l.since) > rememberTime })
	next := slices.SortedFunc(maps.Keys(g.lost), func(a, b string) int {
		return cmp.Or(g.lost[a].tried.Compare(g.lost[b].tried), g.lost[b].since.Compare(g.lost[a].since))
	})
	next = next[:min(len(next), mostTried)]
	for _, a := range next {
		g.lost[a] = lostMember{g.lost[a].since, now}
	}
	return next
}

// judge notes a join that failed after the other side had answered.
func (g *gossip) judge(address string, err error) {
	text := err.Error()
	if strings.Contains(text, "EOF") || strings.Contains(text, "reset by peer") || strings.Contains(text, "ecrypt") {
		g.refuse("key", fmt.Sprintf("%s closed the connection: it has another key, or is not lcache", address))
	}
}

// update sends this member's offers to the others, and reports whether they left this machine. memberlist 0.7 loses a message if another one of the same
// length comes before it is sent: TransmitLimitedQueue begins its numbers again when it replaces its only message, and takes two messages with one number
// for one (memberlist pull request 263). While there is another member, UpdateNode notices that.
func (g *gossip) update() bool {
	err := g.list.UpdateNode(updateTime)
	if err != nil {
		g.log.Debug("send the offers to the cluster", "err", err)
	}
	return err == nil
}

// close leaves the cluster.
func (g *gossip) close() error {
	g.data.Close() // a server of samples may have closed it
	if err := g.list.Leave(leaveTime); err != nil {
		g.log.Debug("leave the cluster", "err", err)
	}
	return g.list.Shutdown()
}

// refuse counts a message that was refused, and logs each kind of them once a minute at most.
func (g *gossip) refuse(kind, text string) {
	g.mu.Lock()
	g.refused++
	now := time.Now()
	g.reason, g.last = text, now
	isDue := now.Sub(g.warned[kind]) >= time.Minute
	if isDue {
		g.warned[kind] = now
	}
	g.mu.Unlock()
	if isDue {
		g.log.Warn("the cluster refused a machine", "reason", text)
	}
}

// RefusedConnection counts a connection to the port of samples that was not accepted, as messages of gossip are counted that are refused.
func (m *Member) RefusedConnection(from net.Addr, err error) {
	m.gossip.refuse("certificate", fmt.Sprintf("%s at the port of samples: %v", hostOf(from.String()), err))
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// NotifyAlive decides whether a node belongs to the cluster.
func (g *gossip) NotifyAlive(n *memberlist.Node) error {
	a, err := decodeAnnouncement(n.Meta)
	if err == nil && a.protocol != Protocol {
		err = fmt.Errorf("it speaks version %d of the protocol between machines, and this program %d: run one version of lcache on all machines", a.protocol, Protocol)
	}
	if err != nil {
		g.refuse("version", fmt.Sprintf("%s: %v", n.Address(), err))
		return err
	}
	g.mu.Lock()
	_, isKnown := g.seen[n.Name]
	isFull := !isKnown && len(g.seen) >= homes.MaxPeers
	g.mu.Unlock()
	if isFull {
		err = fmt.Errorf("%s: the cluster has %d members already, which is the limit", n.Address(), homes.MaxPeers)
		g.refuse("full", err.Error())
	}
	return err
}

// NotifyJoin enters a live member.
func (g *gossip) NotifyJoin(n *memberlist.Node) {
	a, err := decodeAnnouncement(bytes.Clone(n.Meta))
	if err != nil {
		return
	}
	g.mu.Lock()
	if _, isKnown := g.seen[n.Name]; !isKnown { // an update may be older than the death
		delete(g.missed, n.Address())
	}
	g.seen[n.Name] = seenMember{n.Name, n.Address(), a}
	delete(g.lost, n.Address())
	isFirst := len(g.seen) == 2 && n.Name != g.member.id
	g.mu.Unlock()
	signal(g.member.changed)
	if isFirst { // what was sent while this member was alone may be lost: see update
		signal(g.member.offered)
	}
}

// NotifyUpdate enters a member's new announcement.
func (g *gossip) NotifyUpdate(n *memberlist.Node) {
	g.NotifyJoin(n)
	if n.Name == g.member.id {
		signal(g.member.updated)
	}
}

// NotifyLeave removes a member.
func (g *gossip) NotifyLeave(n *memberlist.Node) {
	g.mu.Lock()
	delete(g.seen, n.Name)
	if n.Name != g.member.id {
		g.lost[n.Address()] = lostMember{since: time.Now()}
		if len(g.lost) > mostLost {
			oldest := slices.MinFunc(slices.Collect(maps.Keys(g.lost)), func(a, b string) int { return g.lost[a].since.Compare(g.lost[b].since) })
			delete(g.lost, oldest)
		}
	}
	g.mu.Unlock()
	signal(g.member.changed)
}

// NodeMeta returns this member's announcement.
func (g *gossip) NodeMeta(int) []byte { return g.member.announce().encode() }

// Members send nothing else by gossip.
func (*gossip) NotifyMsg([]byte)                {}
func (*gossip) GetBroadcasts(int, int) [][]byte { return nil }
func (*gossip) LocalState(bool) []byte          { return nil }
func (*gossip) MergeRemoteState([]byte, bool)   {}

// memberlistLog writes what memberlist logs at the level Debug, because most of it is about its own protocol. It counts what shows another key.
type memberlistLog struct{ *gossip }

var _ io.Writer = memberlistLog{}

func (l memberlistLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	l.log.Debug(text)
	if strings.Contains(text, "unacceptable label") || strings.Contains(text, "No installed keys could decrypt") || strings.Contains(text, "Remote state is encrypted and encryption is not configured") ||
		strings.Contains(text, "Encryption is configured but remote state is not encrypted") {
		from := "a machine"
		if _, after, ok := strings.Cut(text, "from="); ok {
			from, _, _ = strings.Cut(after, " ")
			from = hostOf(from)
		}
		l.refuse("key", from+" has another key, or none")
	}
	return len(line), nil
}
