package launch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"lcache/cmd/lcache/internal/simulate"
	"lcache/internal/cluster"
	"lcache/internal/cluster/homes"
	"lcache/internal/serve/schedule"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestSimulatorCountsAsServers: the simulator with the bins, rooms and orders of three servers says exactly how many samples each of them delivers from
// its disk, from the others and from the source, in each epoch. With room for copies, servers may store fewer of them than the simulator.
func TestSimulatorCountsAsServers(t *testing.T) {
	if !testenv.Timed() {
		t.Skip("a slow machine is late, and then others read its samples from the source: make test-faults runs it")
	}
	const large, epochs = 149, 3 // 459 samples in all, one of them empty
	size := func(i int) int { return 200_000 + 500*i }
	for _, room := range []float64{0.5, 1, 1.6, 3} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			servers, files := machines(t, 3, func(int, *cluster.Options) {}, func(o *Options) {
				total := 0
				for i := range large {
					total += size(i)
					path := filepath.Join(o.Sources[0].Path, "class0", fmt.Sprintf("large-%03d", i))
					if err := os.WriteFile(path, slices.Repeat([]byte{byte(i), byte(i >> 8), 7, byte(i * 3)}, size(i)/4), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				o.JobGiven, o.RanksGiven, o.Ingest.Job, o.Ingest.Layout = false, false, schedule.Job{}, "static"
				if room < 3 { // else as much as the dataset needs
					o.Ingest.Budget = int64(room*1.04*float64(total)/3) + 2_700_000 // for blocks that are not for samples
				}
			})
			fleet := fleetOf(t, servers)
			draw := rand.New(rand.NewPCG(3, 8))
			for epoch := range epochs {
				order := draw.Perm(len(files))
				orders := make([][]uint32, len(servers))
				for at, k := range order {
					orders[at%3] = append(orders[at%3], uint32(k))
				}
				want, err := fleet.Epoch(orders)
				if err != nil {
					t.Fatal(err)
				}
				before := counted(servers)
				var reading sync.WaitGroup
				for i, l := range servers {
					reading.Go(func() {
						var batches [][]sample.Index
						for b := range slices.Chunk(orders[i], 4) {
							batches = append(batches, b)
						}
						// Orders are pushed when the others have read the epoch before, so that no server reads ahead of them.
						if err := l.engine.Push(schedule.Pusher{Pid: os.Getpid()}, epoch, 0, batches); err != nil {
							t.Error(err)
							return
						}
						if n, err := readRank(l, epoch, 0, files); err != nil || n != len(orders[i]) {
							t.Errorf("%d samples of %d: %v", n, len(orders[i]), err)
						}
					})
				}
				reading.Wait()
				if t.Failed() {
					return
				}
				for i, after := range counted(servers) {
					got := simulate.Served{Local: after.Local - before[i].Local, Peer: after.Peer - before[i].Peer, Source: after.Source - before[i].Source}
					t.Logf("epoch %d machine %d keeps %.3f: %+v", epoch, i, fleet.Threshold(i).Float(), got)
					// A machine whose disk is busy with other copies does not store this one: then the sample comes from its home again.
					if isLess := room > 1 && got.Local <= want[i].Local && got.Local+got.Peer == want[i].Local+want[i].Peer && got.Source == want[i].Source; got != want[i] && !isLess {
						t.Errorf("epoch %d: machine %d delivered %+v, simulated are %+v", epoch, i, got, want[i])
					}
				}
			}
			for i, l := range servers {
				for _, p := range l.engine.Status().Cluster.Peers {
					if p.LateSamples != 0 {
						t.Errorf("machine %d: late samples of %+v", i, p)
					}
				}
			}
		})
	}
}

// fleetOf returns the simulated cluster of real servers. Their thresholds must be equal.
func fleetOf(t *testing.T, servers []*local) *simulate.Fleet {
	t.Helper()
	var peers []homes.Peer
	var rooms []uint64
	m := servers[0].engine.Share().Manifest
	all := make([]homes.Sample, m.Len())
	for i, bytes := range m.Sizes() {
		name := m.NameHash(sample.Index(i))
		all[i] = homes.Sample{Bin: homes.BinOf(name), Name: name, Padded: servers[0].engine.Share().Padded(bytes)}
	}
	for _, l := range servers {
		s := l.engine.Share()
		peers = append(peers, homes.Peer{ID: s.Cache, Weight: uint64(cluster.WeightOf(s.Room, s.Bytes))})
		rooms = append(rooms, s.Room)
	}
	f, err := simulate.NewFleet(all, peers, rooms)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range servers {
		if got, want := l.engine.Status().Cluster.Peers[0].Copies, f.Threshold(i).Float(); got != want {
			t.Fatalf("machine %d keeps %v copies, simulated are %v", i, got, want)
		}
	}
	return f
}

// counted returns what servers have delivered so far.
func counted(servers []*local) (all []simulate.Served) {
	for _, l := range servers {
		s := simulate.Served{}
		for _, j := range l.engine.Status().Jobs {
			s.Local, s.Peer, s.Source = s.Local+j.HitsLocal, s.Peer+j.HitsPeer, s.Source+j.Misses
		}
		all = append(all, s)
	}
	return all
}
