package cluster

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// TestLostMembersThatSwallowPackets: a round of joining takes a few seconds, however many lost members never answer, and the next round tries the others.
func TestLostMembersThatSwallowPackets(t *testing.T) {
	t.Parallel()
	a := start(t, 'a', Options{Key: testKey(t)}, Listen) // other tests may get the ports of the lost members
	var tried atomic.Int64
	a.gossip.mu.Lock()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tried.Add(1)
			l.Close()
			io.Copy(io.Discard, c) // until the member gives up
			c.Close()
		}()
		a.gossip.lost[l.Addr().String()] = lostMember{since: time.Now()}
	}
	a.gossip.mu.Unlock()
	for _, want := range []int64{mostTried, 100} {
		began := time.Now()
		a.gossip.join(t.Context(), nil)
		if took := time.Since(began); took > 20*time.Second { // one after the other takes 200 s
			t.Errorf("a round took %v", took)
		}
		if n := tried.Load(); n < want {
			t.Errorf("%d members were tried, want %d", n, want)
		}
	}
}

// TestOffersWhileJoining: an offer at the moment of joining reaches the others by gossip, long before the exchange of all states after 15 s. memberlist
// loses its message in one of five cases.
func TestOffersWhileJoining(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	weightOfB := func(a *Member) uint16 {
		if d := a.View().Datasets[train]; len(d.Peers) == 2 {
			return d.Peers[1].Weight
		}
		return 0
	}
	for range 8 {
		a := start(t, 'a', Options{}, Listen)
		b := start(t, 'b', Options{}, seed(a))
		all.Go(func() { // all at once: at this moment b knows nothing about a
			began := time.Now()
			for isOffered := false; weightOfB(a) != 77; time.Sleep(5 * time.Millisecond) {
				if weightOfB(a) == 100 && !isOffered {
					isOffered = true
					if err := b.Offer(Offer{Dataset: train, Cache: CacheID{'b'}, Weight: 77}); err != nil {
						t.Error(err)
					}
				}
				if time.Since(began) > 10*time.Second {
					t.Error("the offer did not come within 10 s")
					return
				}
			}
		})
	}
	all.Wait()
}

// TestMissedMember: a process that was killed and starts again knows nobody. A member that missed it finds it while gossip still has the old process.
func TestMissedMember(t *testing.T) {
	t.Parallel()
	own := fmt.Sprintf("127.%d.%d.%d:0", 128+os.Getpid()>>16&63, os.Getpid()>>8&255, os.Getpid()&255)
	a := start(t, 'a', Options{Listen: own, Expect: 2}, Listen)
	b := start(t, 'b', Options{Expect: 2}, seed(a))
	await(t, a, "roster", hasRoster("ab", OK))
	await(t, b, "roster", hasRoster("ab", OK))
	data, address := a.Data().Addr().String(), seed(a)
	kill(t, a)
	a.Data().Close()
	b.Miss("127.0.0.1:1") // nobody's
	b.Miss(data)
	a = start(t, 'a', Options{Listen: address, Expect: 2}, Listen)
	await(t, b, "new process", func(v *View, d DatasetView) bool { return d.Peers[1].Member == a.Name() && v.Members == 3 })
	await(t, a, "roster", hasRoster("ab", OK))
	b.gossip.mu.Lock()
	defer b.gossip.mu.Unlock()
	if len(b.gossip.missed) != 0 {
		t.Errorf("it is still missed: %v", b.gossip.missed)
	}
}

// TestUpdateOfMissedMember: the others pass on what a member sent before its death, so that a member is still missed when an announcement of it comes.
func TestUpdateOfMissedMember(t *testing.T) {
	t.Parallel()
	a := start(t, 'a', Options{}, Listen)
	b := start(t, 'b', Options{}, seed(a))
	await(t, b, "members", func(v *View, _ DatasetView) bool { return v.Members == 2 })
	g := b.gossip
	g.miss(a.Data().Addr().String(), time.Now()) // without the token, so that b does not reach it
	at := netip.MustParseAddrPort(a.View().Listen)
	g.NotifyUpdate(&memberlist.Node{Name: a.Name(), Addr: at.Addr().AsSlice(), Port: at.Port(), Meta: a.announce().encode()})
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.missed) != 1 {
		t.Errorf("%v are missed", g.missed)
	}
}
