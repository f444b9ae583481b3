package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/testenv"
)

// deadline bounds each wait of these tests. A wait ends as soon as its condition is true.
const deadline = 60 * time.Second

var train = DatasetKey{'t'}

// start starts a member of a dataset, and ends it with the test. Its cache is named by one letter.
func start(t *testing.T, cache byte, o Options, where string) *Member {
	t.Helper()
	w, err := ParseWhere(where)
	if err != nil {
		t.Fatal(err)
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	o.Where, o.Host, o.Program = w, "host-"+string(cache), "test"
	m, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if cache != 0 {
		if err := m.Offer(Offer{Dataset: train, Cache: CacheID{cache}, Weight: 100}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// seed returns WHERE for others to find a member.
func seed(m *Member) string {
	host, port, _ := net.SplitHostPort(m.View().Listen)
	var n int
	fmt.Sscan(port, &n)
	return fmt.Sprintf("%s:%d", host, n-1)
}

// await waits until a member's view is as it should be.
func await(t *testing.T, m *Member, what string, isSo func(*View, DatasetView) bool) {
	t.Helper()
	for end := time.Now().Add(deadline); ; time.Sleep(5 * time.Millisecond) {
		v := m.View()
		if isSo(v, v.Datasets[train]) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v there is no %s: %+v", deadline, what, v)
		}
	}
}

// peers returns the caches in a roster.
func peers(d DatasetView) (names string) {
	if d.Roster != nil {
		for _, p := range d.Roster.Peers {
			names += string(p.ID[0])
		}
	}
	return names
}

func hasRoster(names string, s State) func(*View, DatasetView) bool {
	return func(_ *View, d DatasetView) bool { return peers(d) == names && d.State == s }
}

func TestMembersFindEachOther(t *testing.T) {
	t.Parallel()
	k := testKey(t)
	a := start(t, 'a', Options{Key: k, Expect: 3}, Listen)
	b := start(t, 'b', Options{Key: k, Expect: 3}, seed(a))
	await(t, b, "forming cluster with both", func(_ *View, d DatasetView) bool { return len(d.Peers) == 2 && d.State == Forming })
	c := start(t, 'c', Options{Key: k, Expect: 3}, seed(b)) // one address is enough: gossip brings the rest
	for _, m := range []*Member{a, b, c} {
		await(t, m, "roster", hasRoster("abc", OK))
	}
	if x, y := a.View().Datasets[train].Roster.Hash(), c.View().Datasets[train].Roster.Hash(); x != y {
		t.Errorf("two members made rosters %x and %x", x, y)
	}
	d := a.View().Datasets[train]
	if p := d.Peers[0]; !p.Self || p.Host != "host-a" || !p.InUse || p.Program != "test" || d.Peers[1].Self || d.Peers[1].Host != "host-b" || d.Peers[2].Address != c.View().Listen {
		t.Errorf("a sees %+v", d.Peers)
	}

	// What a member says later reaches the others.
	if err := c.Offer(Offer{Dataset: train, Cache: CacheID{'c'}, Weight: 77, Threshold: 5, Flags: FlagLog}); err != nil {
		t.Fatal(err)
	}
	await(t, a, "new weight of c", func(_ *View, d DatasetView) bool {
		return d.Roster.Peers[2].Weight == 77 && d.Peers[2].Threshold == 5 && d.Peers[2].Flags == FlagLog
	})
	// A server that ends its part in a dataset is gone from it, and stays a member.
	c.Withdraw(train, CacheID{'c'})
	await(t, a, "loss of c", func(v *View, d DatasetView) bool { return d.Peers[2].State == PeerLost && v.Members == 3 })
}

func TestMemberDies(t *testing.T) {
	t.Parallel()
	k := testKey(t)
	// a comes back at its port. At an address of its own nobody else takes the port meanwhile.
	own := fmt.Sprintf("127.%d.%d.%d:0", 64+os.Getpid()>>16&63, os.Getpid()>>8&255, os.Getpid()&255)
	a := start(t, 'a', Options{Key: k, Listen: own, Expect: 3, Grace: 5 * time.Second}, Listen)
	b := start(t, 'b', Options{Key: k, Expect: 3, Grace: 5 * time.Second}, seed(a))
	c := start(t, 'c', Options{Key: k, Expect: 3, Grace: 5 * time.Second}, seed(a))
	await(t, a, "roster of three", hasRoster("abc", OK))
	await(t, b, "roster of three", hasRoster("abc", OK))

	kill(t, c)
	await(t, a, "death of c", func(_ *View, d DatasetView) bool { return d.State == Degraded && peers(d) == "abc" })
	// The seed itself dies, too, and comes back at its address. b joins it again, though a was given no address.
	address := a.View().Listen
	kill(t, a)
	await(t, b, "roster without both", hasRoster("b", Alone))
	host, port, _ := net.SplitHostPort(address)
	var n int
	fmt.Sscan(port, &n)
	a = start(t, 'a', Options{Key: k, Listen: fmt.Sprintf("%s:%d", host, n-1), Expect: 2}, Listen)
	await(t, b, "roster with a again", func(_ *View, d DatasetView) bool { return peers(d) == "ab" })
	await(t, a, "roster with b", hasRoster("ab", OK))
}

// kill ends a member as SIGKILL would: it does not say that it leaves.
func kill(t *testing.T, m *Member) {
	t.Helper()
	m.closing.Do(func() {
		m.stop()
		m.running.Wait()
		if err := m.gossip.list.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

// A member that leaves cleanly is missed at once, long before a probe would find out.
func TestMemberLeaves(t *testing.T) {
	t.Parallel()
	a := start(t, 'a', Options{Expect: 2}, Listen)
	b := start(t, 'b', Options{Expect: 2}, seed(a))
	await(t, a, "roster", hasRoster("ab", OK))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, a, "lost b", func(_ *View, d DatasetView) bool { return d.State == Degraded && peers(d) == "ab" })
}

// Two clusters, or a machine without the key, never mix.
func TestOtherKeysAreRefused(t *testing.T) {
	t.Parallel()
	logs := &lines{}
	a := start(t, 'a', Options{Key: testKey(t), Logger: slog.New(slog.NewTextHandler(logs, nil))}, Listen)
	b := start(t, 'b', Options{Key: testKey(t)}, seed(a))
	c := start(t, 'c', Options{}, seed(a))
	for _, m := range []*Member{b, c} {
		await(t, m, "refusal", func(v *View, d DatasetView) bool { return v.Refused > 0 && d.State == Alone })
	}
	await(t, a, "refusals", func(v *View, d DatasetView) bool { return v.Refused >= 2 && d.State == Alone && peers(d) == "a" })
	if n := strings.Count(logs.String(), "refused"); n != 1 {
		t.Errorf("the log has %d lines about refusals within a minute:\n%s", n, logs)
	}
}

// lines collects a log.
type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

// A copied disk says that it is the cache it was copied from.
func TestCopiedCacheIsRefused(t *testing.T) {
	t.Parallel()
	o := Options{doubt: time.Second}
	a := start(t, 'a', o, Listen)
	await(t, a, "roster", hasRoster("a", Alone))
	b := start(t, 'a', o, seed(a))
	for _, m := range []*Member{a, b} {
		await(t, m, "refused copy", func(_ *View, d DatasetView) bool {
			return len(d.Peers) == 2 && d.Peers[0].State != d.Peers[1].State && (d.Peers[1].State == PeerRefused) == (m == a) && (d.State == Refused) == (m == b)
		})
	}
}

func TestPortsThatAreTaken(t *testing.T) {
	t.Parallel()
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255) // another run on this machine has another address
	// A machine's first two servers get the first two pairs of ports, and both are found.
	a := start(t, 'a', Options{Listen: host, Expect: 2}, Listen)
	b := start(t, 'b', Options{Listen: host, Expect: 2}, host)
	if a.View().Listen != host+":7747" || b.View().Listen != host+":7749" {
		t.Errorf("they listen on %s and %s", a.View().Listen, b.View().Listen)
	}
	await(t, a, "roster", hasRoster("ab", OK))
	// A port that was asked for, and is taken, is an error that says what to do.
	_, err := Start(context.Background(), Options{Listen: host + ":7746"})
	if err == nil || !strings.Contains(err.Error(), "--listen HOST:PORT") {
		t.Errorf("a taken port: %v", err)
	}
	for _, p := range Ports[2:] {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, p+1))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	if _, err := Start(context.Background(), Options{Listen: host}); err == nil || !strings.Contains(err.Error(), "7746 to 7761") {
		t.Errorf("all ports are taken: %v", err)
	}
}

func TestTooManyDatasets(t *testing.T) {
	t.Parallel()
	a := start(t, 0, Options{}, Listen)
	for i := range mostDatasets {
		if err := a.Offer(Offer{Dataset: DatasetKey{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Offer(Offer{Dataset: DatasetKey{0}, Weight: 7}); err != nil {
		t.Errorf("a change of one that is there: %v", err)
	}
	if err := a.Offer(Offer{Dataset: DatasetKey{99}}); err == nil {
		t.Error("an eleventh dataset is taken")
	}
}

// Whatever comes to its ports, a member goes on.
func TestGarbageOnThePorts(t *testing.T) {
	t.Parallel()
	for _, k := range []*Key{nil, testKey(t)} {
		a := start(t, 'a', Options{Key: k, Expect: 2}, Listen)
		address := a.View().Listen
		udp, err := net.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		r := rand.New(rand.NewPCG(1, 1))
		for range testenv.Pick(3000, 300) {
			b := make([]byte, r.IntN(300))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			if len(b) > 0 && r.IntN(2) == 0 {
				b[0] = byte(r.IntN(14)) // a kind of message that memberlist knows
			}
			udp.Write(b) // may be refused by the kernel
			if r.IntN(20) == 0 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				c.Write(b)
				if r.IntN(2) == 0 {
					defer c.Close() // stays open, silent
				} else {
					c.Close()
				}
			}
		}
		start(t, 'b', Options{Key: k, Expect: 2}, seed(a))
		await(t, a, "roster", hasRoster("ab", OK))
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	nowhere, _ := ParseWhere("name.invalid:1")
	for name, o := range map[string]Options{"a public address without a key": {Listen: "0.0.0.0"}, "a host that has no address": {Listen: "127.0.0.1:0", Where: nowhere}, "an address of another machine": {Key: testKey(t), Listen: "203.0.113.7"}} {
		if m, err := Start(context.Background(), o); err == nil {
			t.Errorf("%s was taken", name)
			m.Close()
		}
	}
}

// A process may serve two caches of one dataset: each is a peer.
func TestTwoCachesOfOneDataset(t *testing.T) {
	t.Parallel()
	a := start(t, 'a', Options{}, Listen)
	if err := a.Offer(Offer{Dataset: train, Cache: CacheID{'b'}, Weight: 50}); err != nil {
		t.Fatal(err)
	}
	await(t, a, "roster of both", hasRoster("ab", OK))
	a.Withdraw(train, CacheID{'a'})
	await(t, a, "loss of one", func(_ *View, d DatasetView) bool { return d.State == Degraded && len(d.Peers) == 2 })
}

// A dataset that is offered long after the start of its process waits for its peers as one at the start does.
func TestLateOfferWaitsForPeers(t *testing.T) {
	tr := &tracker{expect: 3, grace: time.Minute, began: time.Unix(90, 0), peers: map[CacheID]*standing{}}
	roster, wake := tr.update(time.Unix(90, 0), []sighting{{Offer{Cache: CacheID{1}, Weight: 1}, seenMember{announcement: &announcement{}}}})
	if roster != nil || !wake.Equal(time.Unix(150, 0)) {
		t.Errorf("roster %v, again at %v", roster, wake)
	}
}

// Seeds that accept connections and never answer delay neither a new offer nor Close.
func TestSilentSeeds(t *testing.T) {
	t.Parallel()
	a := start(t, 'a', Options{}, Listen)
	var silent []string
	for range 16 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		silent = append(silent, fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port-1))
	}
	b := start(t, 'b', Options{}, seed(a)+","+strings.Join(silent, ","))
	await(t, a, "b", func(_ *View, d DatasetView) bool { return len(d.Peers) == 2 })
	began := time.Now()
	if err := b.Offer(Offer{Dataset: train, Cache: CacheID{'b'}, Weight: 77}); err != nil {
		t.Fatal(err)
	}
	await(t, a, "new weight", func(_ *View, d DatasetView) bool { return len(d.Peers) == 2 && d.Peers[1].Weight == 77 })
	t.Logf("the weight came after %v", time.Since(began))
	b.Close()
}

func TestIsJoinDue(t *testing.T) {
	const soon, late = 2 * time.Second, 2 * time.Minute
	for _, test := range []struct {
		n, expect                        int
		sinceStart, sinceLoss, sinceJoin time.Duration
		want                             bool
	}{
		{1, 0, late, late, soon, true}, // alone
		{2, 0, soon, late, soon, false},
		{2, 0, soon, late, joinLater, true},
		{2, 3, soon, late, soon, true}, // one is missing
		{3, 3, soon, late, soon, false},
		{2, 3, late, late, soon, false}, // it has been missing for long
		{2, 3, late, late, joinLater, true},
		{2, 0, late, soon, soon, true}, // one was there just now
	} {
		if got := isJoinDue(test.n, test.expect, test.sinceStart, test.sinceLoss, test.sinceJoin); got != test.want {
			t.Errorf("%+v: got %v", test, got)
		}
	}
}
