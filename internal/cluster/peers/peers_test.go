package peers

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/cluster"
	"lcache/internal/cluster/homes"
	"lcache/internal/testenv"
	"lcache/sample"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }

const samples, size = 3000, 1000

// manifest has samples of one size.
func manifest(t *testing.T) *sample.Manifest {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest")
	entries := make([]sample.Entry, samples)
	for i := range entries {
		entries[i] = sample.Entry{Name: fmt.Sprintf("class/%06d.jpg", i), Size: size, Version: 1}
	}
	if _, err := sample.WriteManifest(path, []string{"class"}, entries); err != nil {
		t.Fatal(err)
	}
	m, err := sample.OpenManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// world is machines that see each other, each with room for a part of the dataset.
type world struct {
	data   []*Dataset
	offers []cluster.Offer
	roster *cluster.Roster
	states []cluster.PeerState
}

func id(i int) cluster.CacheID { return cluster.CacheID{byte(i + 1)} }

func newWorld(t *testing.T, room ...float64) *world {
	m := manifest(t)
	w := &world{roster: &cluster.Roster{}}
	for i, share := range room {
		o := cluster.Offer{Cache: id(i), Weight: cluster.WeightOf(uint64(share*samples*size), samples*size)}
		w.offers, w.states = append(w.offers, o), append(w.states, cluster.PeerOK)
		w.roster.Peers = append(w.roster.Peers, cluster.RosterPeer{ID: o.Cache, Weight: o.Weight})
		w.data = append(w.data, New(Options{Manifest: m, Padded: func(n uint32) uint64 { return uint64(n) }, Cache: o.Cache, Room: uint64(share * samples * size),
			Announce: func(t homes.Threshold) { w.offers[i].Threshold = t }, Logger: slog.New(slog.DiscardHandler)}))
	}
	return w
}

// look gives every machine the present view.
func (w *world) look() {
	for i, d := range w.data {
		v := cluster.DatasetView{Roster: w.roster}
		for j, o := range w.offers {
			v.Peers = append(v.Peers, cluster.PeerView{Offer: o, Self: i == j, State: w.states[j], Data: fmt.Sprint("m", j)})
		}
		d.See(v)
	}
}

func isReady(d *Dataset) bool {
	select {
	case <-d.Ready():
		return true
	default:
		return false
	}
}

// TestNothingBeforeARoster: before the first roster a machine keeps nothing and asks nobody.
func TestNothingBeforeARoster(t *testing.T) {
	d := newWorld(t, 1, 1).data[0]
	d.See(cluster.DatasetView{})
	if _, ok := d.Holder(7, 0); ok || d.Keeps(7) || d.IsHome(7) || isReady(d) || d.Kept(id(0), homes.One) != 0 {
		t.Error("a machine without a roster has decided something")
	}
}

// TestMachineThatKeepsNothing: the others wait for a machine that has not decided what it keeps, and not for one that keeps nothing.
func TestMachineThatKeepsNothing(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.offers[1].Threshold = 0
	w.data[1].o.Announce = func(homes.Threshold) {} // it is about to
	w.look()
	if isReady(w.data[0]) {
		t.Fatal("a machine is ready before the other has announced what it keeps")
	}
	w.offers[1].Flags = cluster.FlagKnown
	w.look()
	if !isReady(w.data[0]) {
		t.Error("a machine waits for another that keeps nothing")
	}
}

// TestEverySampleHasOneHome: the machines agree, each keeps what fits into its room, and the holder of a sample keeps it.
func TestEverySampleHasOneHome(t *testing.T) {
	for _, room := range [][]float64{{0.4, 0.4, 0.4}, {1, 1, 1}, {0.2, 0.2, 0.2}, {1, 0.3, 0.1}} {
		w := newWorld(t, room...)
		w.look()
		if isReady(w.data[len(room)-1]) && w.offers[0].Threshold == 0 {
			t.Error("a machine is ready before the others have announced what they keep")
		}
		w.look()
		kept := make([]int, len(room))
		for i := range sample.Index(samples) {
			owners := 0
			for m, d := range w.data {
				if d.IsHome(i) {
					owners++
				}
				if d.Keeps(i) {
					kept[m]++
				}
				for n := 0; ; n++ {
					holder, ok := d.Holder(i, n)
					if !ok {
						break
					}
					var k int
					fmt.Sscanf(holder, "m%d", &k)
					if k == m || !w.data[k].Keeps(i) {
						t.Fatalf("room %v: machine %d asks %s for sample %d, which does not keep it", room, m, holder, i)
					}
					if n > 1 {
						t.Fatalf("room %v: more than two holders", room)
					}
				}
			}
			if owners > 1 {
				t.Fatalf("room %v: sample %d has %d homes", room, i, owners)
			}
		}
		for m, d := range w.data {
			if !isReady(d) {
				t.Errorf("room %v: machine %d is not ready", room, m)
			}
			if most := int(room[m] * samples); kept[m] > most || kept[m] < most*95/100 {
				t.Errorf("room %v: machine %d keeps %d samples, and has room for %d", room, m, kept[m], most)
			}
			if n := d.Kept(id(m), w.offers[m].Threshold); n != uint64(kept[m]*size) {
				t.Errorf("room %v: machine %d says that it keeps %d bytes, and keeps %d samples of %d", room, m, n, kept[m], size)
			}
		}
	}
}

// TestLostPeerIsNotAsked: while a machine is lost, nobody asks it, and its samples stay its own.
func TestLostPeerIsNotAsked(t *testing.T) {
	w := newWorld(t, 0.4, 0.4, 0.4)
	w.look()
	w.look()
	before := make([]bool, samples)
	for i := range before {
		before[i] = w.data[0].Keeps(sample.Index(i))
	}
	asked := func() (n int) {
		for i := range sample.Index(samples) {
			for k := 0; ; k++ {
				holder, ok := w.data[0].Holder(i, k)
				if !ok {
					break
				}
				if holder == "m1" {
					n++
				}
			}
		}
		return n
	}
	all := asked()
	if all == 0 {
		t.Fatal("machine 1 is never asked: the test shows nothing")
	}
	w.states[1] = cluster.PeerLost
	w.look()
	if n := asked(); n != 0 {
		t.Errorf("the lost machine is asked for %d samples", n)
	}
	for i := range before {
		if w.data[0].Keeps(sample.Index(i)) != before[i] {
			t.Fatal("what a machine keeps has changed without a new roster")
		}
	}
	w.states[1] = cluster.PeerOK
	kept := w.offers[1].Threshold
	w.offers[1].Threshold = 0
	w.data[1].o.Announce = func(homes.Threshold) {} // it is about to
	w.look()
	if n := asked(); n != all {
		t.Errorf("a machine that is back, without a threshold yet, is asked for %d samples, want %d", n, all)
	}
	w.offers[1].Threshold = kept / 2
	w.look()
	if n := asked(); n == 0 || n >= all {
		t.Errorf("with half of its threshold the machine is asked for %d samples of %d", n, all)
	}
}
