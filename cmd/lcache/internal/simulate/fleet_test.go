package simulate

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"lcache/internal/cluster/homes"
)

// dealt returns the samples of an epoch that each machine reads, as a distributed sampler deals them.
func dealt(draw *rand.Rand, samples, machines int) [][]uint32 {
	orders := make([][]uint32, machines)
	for at, k := range draw.Perm(samples) {
		orders[at%machines] = append(orders[at%machines], uint32(k))
	}
	return orders
}

// TestFleetShares: the first epoch comes from the source, once. Later, the share min(1, T) is hits, and copies come to the machines as they read them: with
// room for everything, a machine has after e epochs what it has read of the others, and all that it keeps first.
func TestFleetShares(t *testing.T) {
	const samples, machines, padded = 30_000, 3, 1000
	all, peers := make([]homes.Sample, samples), make([]homes.Peer, machines)
	for i := range all {
		u := spread(uint64(i))
		all[i] = homes.Sample{Bin: homes.BinOf(u), Name: u, Padded: padded}
	}
	for p := range peers {
		binary.LittleEndian.PutUint64(peers[p].ID[:], spread(uint64(p)))
		peers[p].Weight = 100
	}
	for _, copies := range []float64{0.5, 1, 1.6, 3} {
		room := uint64(copies * samples * padded / machines)
		given, err := NewFleet(all, peers, []uint64{room, room, room})
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]*Fleet{"by homes": given, "made up": madeUpFleet(samples, machines, copies)} {
			draw := rand.New(rand.NewPCG(1, 2))
			for epoch := range 4 {
				served, err := f.Epoch(dealt(draw, samples, machines))
				if err != nil {
					t.Fatal(err)
				}
				for p, s := range served {
					if math.Abs(f.Threshold(p).Float()-copies) > 0.03 {
						t.Errorf("%s: machine %d keeps %.3f copies, want %g", name, p, f.Threshold(p).Float(), copies)
					}
					hits, local := 0.0, 0.0
					if epoch > 0 {
						hits = min(1, copies)
						local = hits/machines + max(0, copies-1)/machines*(1-math.Pow(1-1./machines, float64(epoch)))
					}
					of := float64(samples) / machines
					if gotHits, gotLocal := float64(s.Local+s.Peer)/of, float64(s.Local)/of; math.Abs(gotHits-hits) > 0.02 || math.Abs(gotLocal-local) > 0.02 {
						t.Errorf("%s, %g copies, epoch %d, machine %d: %+v, want hits of %.3f and %.3f local", name, copies, epoch, p, s, hits, local)
					}
				}
			}
		}
	}
}

// TestFleetRefuses: impossible machines and orders are errors.
func TestFleetRefuses(t *testing.T) {
	if _, err := NewFleet(nil, nil, nil); err == nil {
		t.Error("a fleet without machines")
	}
	if _, err := NewFleet(nil, make([]homes.Peer, 2), []uint64{1}); err == nil {
		t.Error("two machines with one room")
	}
	f := madeUpFleet(10, 2, 1)
	for name, orders := range map[string][][]uint32{"too few": {{1}}, "too far": {{1}, {10}}} {
		if _, err := f.Epoch(orders); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestCopiesCrossNoNetwork: with SSDs that hold everything each, workers read less and less from each other. The log layout keeps no copies.
func TestCopiesCrossNoNetwork(t *testing.T) {
	s := Simulation{Machine: smallMachine(), Workload: smallWorkload(), Seed: 3}
	s.Machine.Workers, s.Workload.Epochs = 4, 8
	s.Machine.Capacity[2] = 2 * s.Workload.TotalMB()
	for _, method := range []Method{Exact, Analytic} {
		s.Method = method
		mb := map[Contender]Traffic{}
		for _, p := range []Contender{StaticPeers, LogPeers} {
			s.Policy = p
			mb[p] = mustSimulate(t, s).MB
		}
		static, log := mb[StaticPeers], mb[LogPeers]
		if all := log.Local + log.Remote; math.Abs(log.Remote/all-0.75) > 0.01 || static.Remote > 0.4*log.Remote || math.Abs(static.Local+static.Remote-all) > 0.01*all {
			t.Errorf("%s: with copies %+v, without %+v", method, static, log)
		}
	}
}
