package schedule

import (
	"testing"

	"lcache/sample"
)

func TestIsLike(t *testing.T) {
	const n = 6
	type order = [][]sample.Index
	recipe := Job{Recipe: "torch.distributed_sampler", Seed: "1", BatchSize: 2, World: 1}
	with := func(j Job, push map[int]order) *Schedule {
		s, err := New(j, n)
		if err != nil {
			t.Fatal(err)
		}
		for rank, o := range push {
			if err := s.Claim(1, rank, 0, func(int) bool { return false }); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.Push(t.Context(), Pusher{Pid: 1}, 0, rank, Cut(o), func(int, int) bool { return false }); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	a, cut, other := order{{5, 4}, {3, 2}, {1, 0}}, order{{5, 4, 3}, {2, 1, 0}}, order{{5, 4}, {3, 2}, {0, 1}}
	seed := recipe
	seed.Seed = "2"
	for _, tt := range []struct {
		story       string
		one, second *Schedule
		want        bool
	}{
		{"the same batches", with(Job{}, map[int]order{0: a}), with(Job{}, map[int]order{0: a}), true},
		{"other batches of the same samples", with(Job{}, map[int]order{0: a}), with(Job{}, map[int]order{0: cut}), false},
		{"another order", with(Job{}, map[int]order{0: a}), with(Job{}, map[int]order{0: other}), false},
		{"one rank more", with(Job{}, map[int]order{0: a}), with(Job{}, map[int]order{0: a, 1: a}), false},
		{"other ranks", with(Job{}, map[int]order{0: a}), with(Job{}, map[int]order{1: a}), false},
		{"both replay the recipe", with(recipe, nil), with(recipe, nil), true},
		{"recipes with two seeds", with(recipe, nil), with(seed, nil), false},
		{"one replays, and the other one has pushed", with(recipe, nil), with(recipe, map[int]order{0: a}), false},
		{"both have pushed instead of the recipe", with(recipe, map[int]order{0: a}), with(recipe, map[int]order{0: a}), true},
		{"nothing is known of one", with(Job{}, nil), with(Job{}, map[int]order{0: a}), false},
		{"nothing is known of either", with(Job{}, nil), with(Job{}, nil), false},
	} {
		if is, back := tt.one.IsLike(tt.second, 0), tt.second.IsLike(tt.one, 0); is != tt.want || back != tt.want {
			t.Errorf("%s: IsLike is %v, and %v the other way round; want %v", tt.story, is, back, tt.want)
		}
	}
	one, partial := with(Job{}, map[int]order{0: a}), with(Job{}, nil)
	if err := partial.PushPartial(0, 0, a, func(int, int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if one.IsLike(partial, 0) {
		t.Error("a partial order, which may change, is like a pushed one")
	}
}
