package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// product is every choice of one value for each factor, where factor f has sizes[f] values.
func product(sizes []int) [][]int {
	all := [][]int{nil}
	for _, n := range sizes {
		var longer [][]int
		for _, row := range all {
			for v := range n {
				longer = append(longer, append(slices.Clone(row), v))
			}
		}
		all = longer
	}
	return all
}

// A pair is two values that occur together in one case: factor f is v while factor g is w.
type pair struct{ f, v, g, w int }

func pairs(row []int) (list []pair) {
	for g := range row {
		for f := range g {
			list = append(list, pair{f, row[f], g, row[g]})
		}
	}
	return list
}

// covering adds choices until any two values occur together in one of them, because most faults that depend on a combination
// depend on two values. Of some random choices it adds the one with the most new pairs.
func covering(r *rand.Rand, sizes []int, rows [][]int) [][]int {
	missing := map[pair]bool{}
	for _, row := range product(sizes) {
		for _, p := range pairs(row) {
			missing[p] = true
		}
	}
	met := func(row []int) {
		for _, p := range pairs(row) {
			delete(missing, p)
		}
	}
	for _, row := range rows {
		met(row)
	}
	for len(missing) > 0 {
		var best []int
		most := 0
		for range 50 {
			row, fresh := make([]int, len(sizes)), 0
			for f, n := range sizes {
				row[f] = r.IntN(n)
			}
			for _, p := range pairs(row) {
				if missing[p] {
					fresh++
				}
			}
			if fresh > most {
				best, most = row, fresh
			}
		}
		met(best)
		if most > 0 {
			rows = append(rows, best)
		}
	}
	return rows
}

func TestCovering(t *testing.T) {
	sizes := []int{2, 3, 2, 4, 2}
	first := []int{1, 2, 1, 3, 1}
	for seed := range uint64(20) {
		rows := covering(rand.New(rand.NewPCG(seed, 0)), sizes, [][]int{first})
		if !slices.Equal(rows[0], first) || len(rows) < 12 || len(rows) > 24 { // of 96; the largest two factors have 12 pairs
			t.Errorf("seed %d: %d cases, the first is %v", seed, len(rows), rows[0])
		}
		for _, want := range product(sizes) {
			for _, p := range pairs(want) {
				if !slices.ContainsFunc(rows, func(row []int) bool { return row[p.f] == p.v && row[p.g] == p.w }) {
					t.Fatalf("seed %d: %+v in no case", seed, p)
				}
			}
		}
	}
}
