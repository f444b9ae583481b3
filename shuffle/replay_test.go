package shuffle

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// samples has a valid Spec of every recipe, with n samples if the recipe has samples.
func exampleSpecs(n int) []Spec {
	explicit := map[string]string{"generator": "explicit"}
	return []Spec{
		{Recipe: "torch.randperm", Samples: n, Seed: "42"},
		{Recipe: "torch.randperm_inside_out", Samples: n, Seed: "42"},
		{Recipe: "torch.random_sampler", Samples: n, Seed: "42"},
		{Recipe: "torch.random_sampler", Samples: n, Seed: "42", Params: explicit},
		{Recipe: "torch.random_sampler", Samples: n, Seed: "42", Params: map[string]string{"generator": "explicit", "num_samples": "37"}},
		{Recipe: "torch.random_sampler", Samples: n, Seed: "42", Params: map[string]string{"generator": "explicit", "replacement": "true", "num_samples": "37"}},
		{Recipe: "torch.random_sampler_legacy", Samples: n, Seed: "42", Params: map[string]string{"semantics": upTo16, "dataloader": "true"}},
		{Recipe: "torch.random_sampler_legacy", Samples: n, Seed: "42", Params: map[string]string{"semantics": from17, "dataloader": "true"}},
		{Recipe: "torch.random_sampler_legacy", Samples: n, Seed: "42", Params: map[string]string{"semantics": from17, "replacement": "true"}},
		{Recipe: "torch.random_sampler_legacy", Samples: n, Seed: "42", Params: map[string]string{"semantics": from19, "generator": "explicit"}},
		{Recipe: "torch.random_sampler_legacy", Samples: n, Seed: "42", Params: map[string]string{"semantics": upTo16, "generator": "explicit", "replacement": "true"}},
		{Recipe: "torch.subset_random_sampler", Seed: "42", Params: map[string]string{"indices_range": "[90,3,-2]"}},
		{Recipe: "torch.weighted_random_sampler", Seed: "42", Params: map[string]string{"weights": "[1,0,2.5,1e-3]", "num_samples": "50"}},
		{Recipe: "torch.random_split", Samples: n, Seed: "42", Params: map[string]string{"lengths": "[0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1]"}},
		{Recipe: "torch.dataloader", Samples: n, Seed: "42", BatchSize: 4},
		{Recipe: "torch.dataloader", Samples: n, Seed: "42", BatchSize: 4, DropLast: true, Params: explicit},
		{Recipe: "torch.dataloader", Samples: n, Seed: "42", BatchSize: 4, Params: map[string]string{"generator": "explicit", "num_workers": "2", "persistent_workers": "true"}},
		{Recipe: "torch.dataloader", Samples: n, Seed: "42", BatchSize: 4, Params: map[string]string{"generator": "explicit", "abandoned": "[[0,1],[2,0],[3,1000]]"}},
		{Recipe: "torch.dataloader", Samples: n, Seed: "42", BatchSize: 4, Params: map[string]string{"abandoned": "[[1,1],[2,0]]"}},
		{Recipe: "torch.distributed_sampler", Samples: n, Seed: "42", World: 3},
		{Recipe: "torch.distributed_sampler", Samples: n, Seed: "42", World: 3, DropLast: true, BatchSize: 2, Params: map[string]string{"loader_drop_last": "true"}},
		{Recipe: "torch.distributed_sampler", Samples: n, World: 300, Params: map[string]string{"shuffle": "false"}},
		{Recipe: "torchdata.stateful_dataloader", Samples: n, Seed: "42", BatchSize: 4},
		{Recipe: "torchdata.stateful_dataloader", Samples: n, Seed: "42", BatchSize: 4, Params: map[string]string{"generator": "explicit", "num_workers": "2"}},
		{Recipe: "torchdata.stateful_dataloader", Samples: n, Seed: "42", BatchSize: 4, Params: map[string]string{"generator": "explicit", "num_workers": "2", "persistent_workers": "true"}},
		{Recipe: "accelerate.seedable_random_sampler", Samples: n, Seed: "42"},
		{Recipe: "accelerate.batch_sampler_shard", Samples: n, Seed: "42", BatchSize: 4, World: 4},
		{Recipe: "accelerate.batch_sampler_shard", Samples: n, Seed: "42", BatchSize: 4, World: 4, DropLast: true, Params: map[string]string{"use_seedable_sampler": "false", "generator": "explicit"}},
		{Recipe: "accelerate.batch_sampler_shard", Samples: n, Seed: "42", BatchSize: 8, World: 4, Params: map[string]string{"split_batches": "true", "use_seedable_sampler": "false"}},
		{Recipe: "accelerate.batch_sampler_shard", Samples: n, Seed: "42", BatchSize: 8, World: 4, Params: map[string]string{"split_batches": "true", "even_batches": "false"}},
		{Recipe: "accelerate.batch_sampler_shard", Samples: n, Seed: "42", BatchSize: 4, World: 3, Params: map[string]string{"even_batches": "false"}},
		{Recipe: "timm.repeat_aug_sampler", Samples: n, World: 3},
		{Recipe: "timm.repeat_aug_sampler", Samples: n, World: 3, Params: map[string]string{"num_repeats": "2.5", "selected_round": "0"}},
		{Recipe: "numpy.default_rng", Samples: n, Seed: "42"},
		{Recipe: "numpy.default_rng", Samples: n, Seed: "42", Params: map[string]string{"op": inPlace}},
		{Recipe: "numpy.random_state", Samples: n, Seed: "42"},
		{Recipe: "numpy.random_state", Samples: n, Seed: "42", Params: map[string]string{"op": inPlace}},
		{Recipe: "python.shuffle", Samples: n, Seed: "-42"},
		{Recipe: "python.sample", Samples: n, Seed: "42", Params: map[string]string{"k": "1"}},
		{Recipe: "grain.index_shuffle", Samples: n, Seed: "42"},
		{Recipe: "jax.permutation", Samples: n, Seed: "42"},
		{Recipe: "jax.permutation", Samples: n, Seed: "42", Params: map[string]string{"partitionable": "false"}},
	}
}

func mustNew(t testing.TB, spec Spec) *Replay {
	t.Helper()
	r, err := New(spec)
	if err != nil {
		t.Fatalf("%+v: %v", spec, err)
	}
	return r
}

// forEachSpec runs a test with every example, at sizes around the generators' state and the ciphers' blocks.
func forEachSpec(t *testing.T, sizes []int, test func(t *testing.T, spec Spec, r *Replay)) {
	t.Helper()
	for _, n := range sizes {
		for i, spec := range exampleSpecs(n) {
			t.Run(fmt.Sprintf("%s/%d/n=%d", spec.Recipe, i, n), func(t *testing.T) { test(t, spec, mustNew(t, spec)) })
		}
	}
}

func TestExamplesCoverRecipes(t *testing.T) {
	have := map[string]bool{int64Recipe: true}
	for _, spec := range exampleSpecs(10) {
		have[spec.Recipe] = true
	}
	for _, r := range Recipes() {
		if !have[r.Name] {
			t.Errorf("no example of %s", r.Name)
		}
	}
}

// A recipe that reports a permutation gives one in every epoch.
func TestPermutation(t *testing.T) {
	forEachSpec(t, []int{1, 2, 3, 100, 625, 1009, 65536}, func(t *testing.T, spec Spec, r *Replay) {
		if !r.Permutation() {
			return
		}
		for _, epoch := range []int{0, 1, 4} {
			order, err := r.Global(epoch, nil)
			if err != nil {
				t.Fatal(err)
			}
			if at := notPermutation(order, spec.Samples); at != "" {
				t.Errorf("epoch %d: %s", epoch, at)
			}
		}
	})
}

// notPermutation returns the reason why order is not a permutation of 0..n-1; "": it is one.
func notPermutation(order []uint32, n int) string {
	if len(order) != n {
		return fmt.Sprintf("%d samples of %d", len(order), n)
	}
	seen := make([]bool, n)
	for i, x := range order {
		if int(x) >= n || seen[x] {
			return fmt.Sprintf("position %d has %d, out of range or for the second time", i, x)
		}
		seen[x] = true
	}
	return ""
}

// A recipe whose global order does not depend on the world size, by its own report, gives the same order for each.
func TestWorldInOrder(t *testing.T) {
	for _, r := range Recipes() {
		if !r.has(paramWorld) {
			continue
		}
		for _, spec := range exampleSpecs(100) {
			if spec.Recipe != r.Name {
				continue
			}
			var orders [2][]uint32
			for i, world := range []int{2, 4} {
				spec.World = world
				order, err := mustNew(t, spec).Global(3, nil)
				if err != nil {
					t.Fatal(err)
				}
				orders[i] = order
			}
			if depends := !slices.Equal(orders[0], orders[1]); depends && !r.WorldInOrder {
				t.Errorf("%+v: the global order depends on the world size", spec)
			}
		}
	}
}

func TestGrainRepeats(t *testing.T) {
	for n, want := range map[int]bool{17: false, 65536: false, 65537: true, 65538: false, 131073: false, 262145: true} {
		r := mustNew(t, Spec{Recipe: "grain.index_shuffle", Samples: n, Seed: "1"})
		order, err := r.Global(0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := notPermutation(order, n) != ""; got != want || r.Permutation() == want {
			t.Errorf("n %d: repeats %v, Permutation() %v; want repeats %v", n, got, r.Permutation(), want)
		}
	}
}

// An epoch's order is the same if the earlier epochs were computed before it, skipped, or computed after it.
func TestJumps(t *testing.T) {
	forEachSpec(t, []int{1, 100, 625}, func(t *testing.T, spec Spec, r *Replay) {
		const epochs = 6
		var want [epochs][]uint32
		for e := range epochs {
			order, err := r.Global(e, nil)
			if err != nil {
				t.Fatal(err)
			}
			want[e] = order
		}
		jumper := mustNew(t, spec)
		for _, e := range []int{5, 5, 4, 0, 3, 3, 2, 5, 1} {
			got, err := jumper.Global(e, nil)
			if err != nil || !slices.Equal(got, want[e]) {
				t.Fatalf("epoch %d, jumped to: %v, want %v (%v)", e, got, want[e], err)
			}
		}
	})
}

// A rank's batches together are its order, and every position is in the global order.
func TestSplit(t *testing.T) {
	forEachSpec(t, []int{1, 2, 22, 100, 257}, func(t *testing.T, spec Spec, r *Replay) {
		const epoch = 1
		global, err := r.Global(epoch, nil)
		if err != nil {
			t.Fatal(err)
		}
		split, err := r.Split(epoch)
		if err != nil {
			t.Fatal(err)
		}
		var positions []uint64
		for rank := range split.World() {
			want, err := r.Rank(epoch, rank, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []uint32
			for b := range split.Batches(rank) {
				positions = split.Positions(rank, b, positions)
				if len(positions) == 0 || split.BatchSize() > 0 && (len(positions) > split.BatchSize() || len(positions) < split.BatchSize() && b+1 < split.Batches(rank)) {
					t.Fatalf("rank %d: batch %d of %d has %d samples", rank, b, split.Batches(rank), len(positions))
				}
				for _, p := range positions {
					got = append(got, global[p])
				}
			}
			if !slices.Equal(got, want) || len(want) != split.Len(rank) {
				t.Fatalf("rank %d: its batches have %v, its order %v of %d", rank, got, want, split.Len(rank))
			}
			if after := split.Positions(rank, split.Batches(rank), positions); len(after) != 0 {
				t.Fatalf("rank %d: a batch after the last is %v, want none", rank, after)
			}
		}
		for _, rank := range []int{-1, split.World()} {
			if split.Len(rank) != 0 || split.Batches(rank) != 0 || len(split.Positions(rank, 0, nil)) != 0 {
				t.Errorf("rank %d of %d gets samples, want none", rank, split.World())
			}
			if _, err := r.Rank(epoch, rank, nil); err == nil {
				t.Errorf("rank %d of %d has an order, want an error", rank, split.World())
			}
		}
	})
}

// The ranks together read every sample, with the least padding possible.
func TestDistributedSplitCovers(t *testing.T) {
	for _, c := range []struct{ n, world int }{{10, 3}, {9, 3}, {1, 8}, {3, 8}, {100, 7}} {
		for _, drop := range []bool{false, true} {
			r := mustNew(t, Spec{Recipe: "torch.distributed_sampler", Samples: c.n, World: c.world, DropLast: drop})
			split, err := r.Split(0)
			if err != nil {
				t.Fatal(err)
			}
			count := make([]int, c.n)
			for rank := range c.world {
				for _, p := range split.Positions(rank, 0, nil) {
					count[p]++
				}
			}
			total := 0
			for p, k := range count {
				total += k
				if drop && k > 1 || !drop && k == 0 {
					t.Errorf("n %d, world %d, drop_last %v: position %d is read %d times", c.n, c.world, drop, p, k)
				}
			}
			want := (c.n + c.world - 1) / c.world * c.world
			if drop {
				want = c.n / c.world * c.world
			}
			if total != want {
				t.Errorf("n %d, world %d, drop_last %v: %d reads, want %d", c.n, c.world, drop, total, want)
			}
		}
	}
}

// Computing an epoch again in the same slice must not allocate memory for each sample.
func TestAllocations(t *testing.T) {
	const n = 20_000
	for _, spec := range exampleSpecs(n) {
		r := mustNew(t, spec)
		var dst, rank []uint32
		var err error
		epoch := 0
		allocs := testing.AllocsPerRun(3, func() {
			if dst, err = r.Global(epoch, dst); err != nil {
				t.Fatal(err)
			}
			if rank, err = r.Rank(epoch, 0, rank); err != nil {
				t.Fatal(err)
			}
			epoch++
		})
		if allocs > 30 {
			t.Errorf("%+v: %v allocations an epoch of %d samples", spec, allocs, n)
		}
	}
}

// A rank's order takes the memory of one global order and of itself, without a second copy of the global order.
func TestRankMemory(t *testing.T) {
	const n, world = 1_000_000, 8
	for _, w := range []int{1, world} {
		r := mustNew(t, Spec{Recipe: "torch.distributed_sampler", Samples: n, World: w})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		order, err := r.Rank(0, 0, nil)
		runtime.ReadMemStats(&after)
		if err != nil || len(order) != n/w {
			t.Fatalf("%d samples (%v)", len(order), err)
		}
		most := uint64(4*n + 1<<16)
		if w > 1 {
			most += 4 * n / world
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("world %d: %d bytes allocated, want at most %d", w, got, most)
		}
	}
}

// Stop ends draws that would take minutes. An order that needs no draws is still computed.
func TestStop(t *testing.T) {
	for name, sequential := range map[string]bool{"torch.random_sampler": true, "numpy.random_state": true, "torch.distributed_sampler": false} {
		spec := Spec{Recipe: name, Samples: 1000, Seed: "1", BatchSize: 10}
		if name == "numpy.random_state" {
			spec.Params = map[string]string{"op": inPlace}
		}
		r, err := New(spec)
		if err != nil {
			t.Fatal(err)
		}
		if r.Sequential() != sequential {
			t.Errorf("%s: Sequential is %v", name, r.Sequential())
		}
		ended := make(chan error)
		go func() {
			_, err := r.Global(maxEpoch, nil)
			ended <- err
		}()
		r.Stop()
		if err := <-ended; sequential != errors.Is(err, errStopped) {
			t.Errorf("%s: a far epoch, stopped: got %v", name, err)
		}
		if _, err := r.Global(2, nil); sequential != errors.Is(err, errStopped) {
			t.Errorf("%s: epoch 2 after Stop: got %v", name, err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	for _, recipe := range []string{"torch.distributed_sampler", "torch.randperm"} {
		spec := Spec{Recipe: recipe, Samples: 1000, Seed: "3"}
		world := 1
		if recipe == "torch.distributed_sampler" {
			world = 4
			spec.World = world
		}
		r, alone := mustNew(t, spec), mustNew(t, spec)
		var wg sync.WaitGroup
		for i := range 8 {
			epoch, rank := i/2, i%world
			want, err := alone.Rank(epoch, rank, nil)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				got, err := r.Rank(epoch, rank, nil)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: epoch %d, rank %d differs under concurrent calls (%v)", recipe, epoch, rank, err)
				}
			})
		}
		wg.Wait()
	}
}

// Equal keys mean equal orders, so a key has every parameter and nothing else.
func TestKey(t *testing.T) {
	base := Spec{Recipe: "torch.distributed_sampler", Samples: 10, World: 2}
	key := mustNew(t, base).Key()
	if want := "torch.distributed_sampler n=10 seed=0 world=2 drop_last=false shuffle=true semantics=torch>=1.8 loader_drop_last=false"; key != want {
		t.Errorf("key %q, want %q", key, want)
	}
	for name, change := range map[string]func(*Spec){
		"n":     func(s *Spec) { s.Samples = 11 },
		"seed":  func(s *Spec) { s.Seed = "1" },
		"world": func(s *Spec) { s.World = 3 },
		"batch": func(s *Spec) { s.BatchSize = 5 },
		"drop":  func(s *Spec) { s.DropLast = true },
		"param": func(s *Spec) { s.Params = map[string]string{"shuffle": "false"} },
	} {
		spec := base
		change(&spec)
		if got := mustNew(t, spec).Key(); got == key {
			t.Errorf("%s is not in the key %q", name, got)
		}
	}
	same := base
	same.Seed, same.Params = "+00", map[string]string{"shuffle": "true"}
	if got := mustNew(t, same).Key(); got != key {
		t.Errorf("with explicit defaults: key %q, want %q", got, key)
	}
	list := Spec{Recipe: "torch.subset_random_sampler", Seed: "1", Params: map[string]string{"indices": "[5, 6]"}}
	other := list
	other.Params = map[string]string{"indices": "[6, 5]"}
	if mustNew(t, list).Key() == mustNew(t, other).Key() {
		t.Error("a list's order is not in the key")
	}
	if spaced := (Spec{Recipe: list.Recipe, Seed: "1", Params: map[string]string{"indices": "[5,6]"}}); mustNew(t, spaced).Key() != mustNew(t, list).Key() {
		t.Error("a list's spaces are in the key")
	}
}

func TestUsageErrors(t *testing.T) {
	param := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, c := range []struct {
		spec Spec
		want string // in the error
	}{
		{Spec{}, "no recipe is named"},
		{Spec{Recipe: "torch.nosuch"}, "unknown recipe torch.nosuch; the recipes are accelerate.batch_sampler_shard, "},
		{Spec{Recipe: "torch.randprem"}, "unknown recipe torch.randprem: did you mean torch.randperm? The recipes are accelerate.batch_sampler_shard, "},
		{Spec{Recipe: "DistributedSampler"}, "did you mean torch.distributed_sampler? The recipes are "},
		{Spec{Recipe: "torch.distributed_sampler", Samples: 3, Params: param("shufle", "true")}, "no parameter shufle: did you mean shuffle? Its parameters: n, seed"},
		{Spec{Recipe: "tf.data.shuffle"}, "push_order"},
		{Spec{Recipe: int64Recipe, Samples: 1, Seed: "1"}, "not an order"},
		{Spec{Recipe: "torch.randperm", Samples: 3}, "seed is missing"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "one"}, "not a decimal number"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "18446744073709551616"}, "-2^63 to 2^64-1"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "-9223372036854775809"}, "-2^63 to 2^64-1"},
		{Spec{Recipe: "torch.randperm", Samples: -1, Seed: "1"}, "n is -1"},
		{Spec{Recipe: "torch.randperm", Samples: 1 << 32, Seed: "1"}, "n is 4294967296"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "1", World: 2}, "no parameter world; its parameters: n, seed"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "1", DropLast: true}, "loader_drop_last"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "1", Params: param("colour", "red")}, "no parameter colour; its parameters: n, seed"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "1", Params: param("seed", "2")}, "--seed"},
		{Spec{Recipe: "torch.randperm", Samples: 3, Seed: "1", Params: param("device", "cuda:0")}, "push_order"},
		{Spec{Recipe: "torch.random_sampler", Samples: 3, Seed: "1", Params: param("generator", "cuda")}, "push_order"},
		{Spec{Recipe: "torch.random_sampler", Samples: 3, Seed: "1", Params: param("generator", "mine")}, "not one of explicit, default"},
		{Spec{Recipe: "torch.random_sampler", Samples: 0, Seed: "1"}, "empty dataset"},
		{Spec{Recipe: "torch.random_sampler", Samples: 3, Seed: "1", Params: param("replacement", "True")}, "neither true nor false"},
		{Spec{Recipe: "torch.random_sampler", Samples: 3, Seed: "1", Params: param("num_samples", "0")}, "num_samples is 0"},
		{Spec{Recipe: "torch.random_sampler", Samples: 3, Seed: "1", Params: param("num_samples", "4294967295")}, "16 times the dataset"},
		{Spec{Recipe: "torch.subset_random_sampler", Seed: "1", Params: param("indices_range", "[0,4294967295]")}, "16 times the dataset"},
		{Spec{Recipe: "torch.random_split", Seed: "1", Params: param("lengths", "[4294967295]")}, "16 times the dataset"},
		{Spec{Recipe: "torch.random_sampler", Samples: 3, Seed: "1", Params: param("torch", "new")}, "not a release"},
		{Spec{Recipe: "torch.random_sampler_legacy", Samples: 3, Seed: "1"}, "semantics is missing"},
		{Spec{Recipe: "torch.random_sampler_legacy", Samples: 3, Seed: "1", Params: param("semantics", from17, "num_samples", "2")}, "replacement"},
		{Spec{Recipe: "torch.dataloader", Samples: 3, Seed: "1", Params: param("in_order", "false")}, "push_order"},
		{Spec{Recipe: "torch.dataloader", Samples: 3, Seed: "1", Params: param("persistent_workers", "true")}, "num_workers"},
		{Spec{Recipe: "torch.dataloader", Samples: 3, Seed: "1", DropLast: true}, "batch_size"},
		{Spec{Recipe: "torch.dataloader", Samples: 3, Seed: "1", Params: param("abandoned", "[[0,1],[0,2]]")}, "twice"},
		{Spec{Recipe: "torch.dataloader", Samples: 3, Seed: "1", Params: param("abandoned", "soon")}, "pairs"},
		{Spec{Recipe: "torch.subset_random_sampler", Seed: "1"}, "either indices or indices_range"},
		{Spec{Recipe: "torch.subset_random_sampler", Seed: "1", Params: param("indices", "[1,2,-3]")}, "JSON list"},
		{Spec{Recipe: "torch.subset_random_sampler", Samples: 3, Seed: "1", Params: param("indices", "[1,3]")}, "n is 3"},
		{Spec{Recipe: "torch.subset_random_sampler", Seed: "1", Params: param("indices_range", "[0,5,0]")}, "step is 0"},
		{Spec{Recipe: "torch.subset_random_sampler", Seed: "1", Params: param("indices_range", "[5,-5,-1]")}, "below 0"},
		{Spec{Recipe: "torch.subset_random_sampler", Seed: "1", Params: param("indices", "no-such-file")}, "no-such-file"},
		{Spec{Recipe: "torch.subset_random_sampler", Seed: "1", Params: param("indices", "/dev/zero")}, "not a file"},
		{Spec{Recipe: "torch.weighted_random_sampler", Seed: "1", Params: param("weights", "[1]", "num_samples", "2", "replacement", "false")}, "push_order"},
		{Spec{Recipe: "torch.weighted_random_sampler", Seed: "1", Params: param("weights", "[1]", "num_samples", "1")}, "push_order"},
		{Spec{Recipe: "torch.weighted_random_sampler", Seed: "1", Params: param("weights", "[1,-1]", "num_samples", "2")}, "below 0"},
		{Spec{Recipe: "torch.weighted_random_sampler", Seed: "1", Params: param("weights", "[0]", "num_samples", "2")}, "sum to 0"},
		{Spec{Recipe: "torch.random_split", Samples: 5, Seed: "1", Params: param("lengths", "[1,2]")}, "lengths sum to 3, n is 5"},
		{Spec{Recipe: "torch.random_split", Samples: 5, Seed: "1", Params: param("lengths", "[0.5,0.6]")}, "fractions"},
		{Spec{Recipe: "torch.distributed_sampler", Samples: 1, World: 8, Params: param("semantics", "torch1.6-1.7")}, "cannot pad"},
		{Spec{Recipe: "torch.distributed_sampler", Samples: 1, Seed: "1", Params: param("semantics", "torch<=1.5")}, "neither seed"},
		{Spec{Recipe: "accelerate.seedable_random_sampler", Samples: 5}, "--seed S, or --param data_seed=S"},
		{Spec{Recipe: "accelerate.batch_sampler_shard", Samples: 5, Seed: "1"}, "batch_size is missing"},
		{Spec{Recipe: "accelerate.batch_sampler_shard", Samples: 5, Seed: "1", BatchSize: 3, World: 2, Params: param("split_batches", "true")}, "multiple"},
		{Spec{Recipe: "accelerate.batch_sampler_shard", Samples: 5, Seed: "1", BatchSize: 1 << 30, World: 2}, "padding"},
		{Spec{Recipe: "timm.repeat_aug_sampler", Samples: 5, Seed: "1"}, "no parameter seed"},
		{Spec{Recipe: "timm.repeat_aug_sampler", Samples: 5, Params: param("num_repeats", "0")}, "num_repeats"},
		{Spec{Recipe: "timm.repeat_aug_sampler", Samples: 5, Params: param("num_repeats", "NaN")}, "not a number"},
		{Spec{Recipe: "numpy.default_rng", Samples: 5, Seed: "-1"}, "below 0"},
		{Spec{Recipe: "numpy.random_state", Samples: 5, Seed: "4294967296"}, "2^32-1"},
		{Spec{Recipe: "grain.index_shuffle", Samples: 5, Seed: "4294967296"}, "2^32-1"},
		{Spec{Recipe: "python.sample", Samples: 5, Seed: "1", Params: param("k", "6")}, "larger"},
	} {
		_, err := New(c.spec)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v:\n got %v\nwant a usage error with %q", c.spec, err, c.want)
		}
	}
}

func TestEpochErrors(t *testing.T) {
	for _, c := range []struct {
		spec  Spec
		epoch int
		want  string
	}{
		{Spec{Recipe: "torch.randperm", Samples: 5, Seed: "1"}, -1, "epochs count from 0"},
		{Spec{Recipe: "torch.randperm", Samples: 5, Seed: "1"}, math.MaxInt, "the limit is 16777216"},
		{Spec{Recipe: "numpy.default_rng", Samples: 5, Seed: "1", Params: map[string]string{"op": inPlace}}, math.MaxInt, "the limit is 16777216"},
		{Spec{Recipe: "torch.distributed_sampler", Samples: 5, Seed: "18446744073709551615"}, 1, "2^64-1"},
		{Spec{Recipe: "torch.random_split", Samples: 5, Seed: "1", Params: map[string]string{"lengths": "[2,3]"}}, 2, "number of a split"},
		{Spec{Recipe: "jax.permutation", Samples: 5, Seed: "1"}, 1 << 32, "2^32-1"},
	} {
		r := mustNew(t, c.spec)
		var usage *UsageError
		if _, err := r.Rank(c.epoch, 0, nil); !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, epoch %d: %v, want a usage error with %q", c.spec, c.epoch, err, c.want)
		}
		if got, err := r.Rank(0, 0, nil); err != nil || len(got) == 0 {
			t.Errorf("%+v: epoch 0 after that: %v", c.spec, err)
		}
	}
}

// FuzzNew gives every recipe invalid parameters of every kind. Nothing may panic. Nothing may be allocated by the size that a
// parameter claims before that size is checked. Orders have the length that the split reports.
func FuzzNew(f *testing.F) {
	for _, file := range readVectors(f) {
		for _, c := range file.Cases {
			spec, rank := c.spec(f)
			f.Add(spec.Recipe, min(spec.Samples, 5000), spec.Seed, spec.BatchSize, spec.World, spec.DropLast, paramText(spec.Params), 1, rank)
		}
	}
	for _, spec := range exampleSpecs(30) {
		f.Add(spec.Recipe, spec.Samples, spec.Seed, spec.BatchSize, spec.World, spec.DropLast, paramText(spec.Params), 2, 1)
	}
	f.Fuzz(func(t *testing.T, recipe string, n int, seed string, batch, world int, drop bool, params string, epoch, rank int) {
		const small = 5000
		if n > small || epoch > 20 {
			return // a large dataset takes much memory, and a far epoch takes long
		}
		spec := Spec{Recipe: recipe, Samples: n, Seed: seed, BatchSize: batch, World: world, DropLast: drop, Params: map[string]string{}}
		for line := range strings.SplitSeq(params, "\n") {
			if name, text, ok := strings.Cut(line, "="); ok && (strings.HasPrefix(text, "[") || name != "weights" && name != "indices" && name != "state") {
				spec.Params[name] = text
			}
		}
		r, err := New(spec)
		if err != nil {
			var usage *UsageError
			if !errors.As(err, &usage) {
				t.Fatalf("%+v: got %v, want a usage error", spec, err)
			}
			return
		}
		split, err := r.Split(epoch)
		if err != nil {
			return
		}
		if size, err := r.plan.size(epoch); err != nil || size > small {
			return
		}
		global, err := r.Global(epoch, nil)
		if err != nil {
			return
		}
		length := split.Len(rank)
		if length > 4*small || rank < 0 || rank >= split.World() {
			return
		}
		order, err := r.Rank(epoch, rank, nil)
		if err != nil || len(order) != length {
			t.Fatalf("%+v: %d samples, the split says %d (%v)", spec, len(order), length, err)
		}
		if b := split.Batches(rank); b > 0 {
			last := split.Positions(rank, b-1, nil)
			if len(last) == 0 || global[last[len(last)-1]] != order[len(order)-1] {
				t.Fatalf("%+v: the last batch, %v, does not end like the order", spec, last)
			}
		}
		if at := notPermutation(global, n); r.Permutation() && at != "" {
			t.Fatalf("%+v: not a permutation: %s", spec, at)
		}
	})
}

func paramText(params map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		lines = append(lines, name+"="+params[name])
	}
	return strings.Join(lines, "\n")
}
