package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/serve/fetch"
	"lcache/sample"
)

// twoPeers are the home of all samples and a peer with copies.
type twoPeers struct {
	fetch func(ctx context.Context, peer string, index sample.Index, to fetch.Sink) error

	mu    sync.Mutex // guards the fields that follow
	asked []string
	wrong []string // the peers that sent wrong bytes
}

func (p *twoPeers) Holder(_ sample.Index, n int) (string, bool) {
	return []string{"home", "second", ""}[min(n, 2)], n < 2
}

func (p *twoPeers) Wrong(peer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, peer)
}

func (p *twoPeers) Fetch(ctx context.Context, peer string, indices []sample.Index, to fetch.Sink) error {
	p.mu.Lock()
	p.asked = append(p.asked, peer)
	p.mu.Unlock()
	for _, i := range indices {
		if err := p.fetch(ctx, peer, i, to); err != nil {
			return err
		}
	}
	return nil
}

// send sends a sample in pieces.
func send(to fetch.Sink, index sample.Index, b []byte, sum uint64, fromSource bool, pieces int) {
	for at, left := 0, pieces; left > 0; left-- {
		n := (len(b) - at) / left
		a := fetch.Arrival{Index: index, Offset: uint32(at), Length: uint32(n), Sum: sum, FromSource: fromSource}
		if room := to.Room(a); room != nil {
			copy(room, b[at:at+n])
			to.Came(a)
		}
		at += n
	}
}

// TestPeersBeforeTheSource: a sample that the log lacks comes from its home, else from the peer with copies, else from the source. Wrong bytes are never
// taken, and a peer that does not answer costs no more than PeerTime.
func TestPeersBeforeTheSource(t *testing.T) {
	peers := &twoPeers{}
	b, _ := newBed(t, 40, 10, fetch.Options{Peers: peers})
	at := sample.Index(9)
	for name, c := range map[string]struct {
		fetch      func(ctx context.Context, peer string, index sample.Index, to fetch.Sink) error
		asked      int
		from       sample.Origin
		corrupt    int64
		fromSource int
	}{
		"from its home": {func(_ context.Context, _ string, i sample.Index, to fetch.Sink) error {
			send(to, i, b.Content(i), sample.Sum(b.Content(i)), false, 1)
			return nil
		}, 1, sample.FromPeer, 0, 0},
		"in three pieces": {func(_ context.Context, _ string, i sample.Index, to fetch.Sink) error {
			send(to, i, b.Content(i), sample.Sum(b.Content(i)), false, 3)
			return nil
		}, 1, sample.FromPeer, 0, 0},
		"the home read the source for it": {func(_ context.Context, _ string, i sample.Index, to fetch.Sink) error {
			send(to, i, b.Content(i), sample.Sum(b.Content(i)), true, 1)
			return nil
		}, 1, sample.FromSource, 0, 0},
		"the home does not have it": {func(_ context.Context, peer string, i sample.Index, to fetch.Sink) error {
			if peer == "home" {
				to.Came(fetch.Arrival{Index: i, Absent: true})
				return nil
			}
			send(to, i, b.Content(i), sample.Sum(b.Content(i)), false, 1)
			return nil
		}, 2, sample.FromPeer, 0, 0},
		"nobody has it": {func(_ context.Context, _ string, i sample.Index, to fetch.Sink) error {
			to.Came(fetch.Arrival{Index: i, Absent: true})
			return nil
		}, 2, sample.FromSource, 0, 1},
		"connections break": {func(context.Context, string, sample.Index, fetch.Sink) error { return errors.New("broken") }, 2, sample.FromSource, 0, 1},
		"flipped bits": {func(_ context.Context, _ string, i sample.Index, to fetch.Sink) error {
			wrong := bytes.Clone(b.Content(i))
			wrong[7] ^= 1
			send(to, i, wrong, sample.Sum(b.Content(i)), false, 1)
			return nil
		}, 2, sample.FromSource, 2, 1},
		"half of it": {func(_ context.Context, _ string, i sample.Index, to fetch.Sink) error {
			send(to, i, b.Content(i)[:1000], sample.Sum(b.Content(i)), false, 1)
			return nil
		}, 2, sample.FromSource, 0, 1},
		"too much": {func(_ context.Context, _ string, i sample.Index, to fetch.Sink) error {
			if to.Room(fetch.Arrival{Index: i, Offset: 2999, Length: 2}) != nil || to.Room(fetch.Arrival{Index: i, Offset: 1<<32 - 1, Length: 1<<32 - 1}) != nil {
				t.Error("there is room for bytes after the sample's end")
			}
			return nil
		}, 2, sample.FromSource, 0, 1},
		"a hung peer": {func(ctx context.Context, _ string, _ sample.Index, _ fetch.Sink) error {
			<-ctx.Done()
			return ctx.Err()
		}, 2, sample.FromSource, 0, 1},
	} {
		at++
		corrupt, reads := b.Fetcher.Stats.PeerCorrupt.Load(), b.Source.Reads()[b.Name(at)]
		peers.asked, peers.wrong, peers.fetch = nil, nil, c.fetch
		began := time.Now()
		extents, got, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{at})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(got[0].Data, b.Content(at)) || got[0].From != c.from || len(peers.asked) != c.asked {
			t.Errorf("%s: from %d after %d requests to peers, want %d after %d", name, got[0].From, len(peers.asked), c.from, c.asked)
		}
		if n := b.Fetcher.Stats.PeerCorrupt.Load() - corrupt; n != c.corrupt {
			t.Errorf("%s: %d are counted as corrupt, want %d", name, n, c.corrupt)
		}
		if want := []string{"home", "second"}[:c.corrupt]; !slices.Equal(peers.wrong, want) {
			t.Errorf("%s: these peers are said to have sent wrong bytes: %q, want %q", name, peers.wrong, want)
		}
		if n := b.Source.Reads()[b.Name(at)] - reads; n != c.fromSource {
			t.Errorf("%s: the source was read %d times, want %d", name, n, c.fromSource)
		}
		if took := time.Since(began); took > 2*fetch.PeerTime+10*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		for _, x := range extents {
			b.Staging.Drop(x)
		}
	}
}

// TestAloneAsksNobody: a machine that answers a peer requests nothing from another one.
func TestAloneAsksNobody(t *testing.T) {
	peers := &twoPeers{fetch: func(context.Context, string, sample.Index, fetch.Sink) error { return nil }}
	b, _ := newBed(t, 4, 2, fetch.Options{Peers: peers})
	extents, got, err := b.Fetcher.FetchAll(fetch.Alone(t.Context()), []sample.Index{3})
	if err != nil || got[0].From != sample.FromSource || len(peers.asked) != 0 {
		t.Errorf("from %v after %v, %v", got, peers.asked, err)
	}
	for _, x := range extents {
		b.Staging.Drop(x)
	}
}

// TestOneReadForSeveral: with peers, requests for a sample at the same time read the source once, if the log then has it.
func TestOneReadForSeveral(t *testing.T) {
	var b *bed
	l := struct{ append func(sample.Index) }{}
	peers := &twoPeers{fetch: func(context.Context, string, sample.Index, fetch.Sink) error { return errors.New("away") }}
	b, log := newBed(t, 6, 2, fetch.Options{Peers: peers, OnRead: func(_ sample.Origin, index sample.Index, _ []byte) { l.append(index) }})
	var mu sync.Mutex
	l.append = func(index sample.Index) {
		mu.Lock()
		defer mu.Unlock()
		if b.Locations.Get(index) == 0 {
			b.Fill(log, 0, index)
		}
	}
	var requests sync.WaitGroup
	var origins [sample.Origins]atomic.Int64
	for range 16 {
		requests.Go(func() {
			extents, got, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{4})
			if err != nil || !bytes.Equal(got[0].Data, b.Content(4)) {
				t.Errorf("%v", err)
				return
			}
			origins[got[0].From].Add(1)
			for _, x := range extents {
				b.Staging.Drop(x)
			}
		})
	}
	requests.Wait()
	if n := b.Source.Reads()[b.Name(4)]; n != 1 {
		t.Errorf("the source was read %d times", n)
	}
	if source, log := origins[sample.FromSource].Load(), origins[sample.FromLog].Load(); source != 1 || log != 15 {
		t.Errorf("%d samples are said to come from the source and %d from the log, want 1 and 15", source, log)
	}
}
