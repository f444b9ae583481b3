package sample

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSet(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 1000} {
		s, err := NewSet(n)
		if err != nil {
			t.Fatal(err)
		}
		want := map[Index]bool{}
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for range 4 * n {
			i := Index(r.IntN(n))
			if r.IntN(3) > 0 {
				if s.Add(i) == want[i] {
					t.Fatalf("of %d: Add(%d) returned the wrong value", n, i)
				}
				want[i] = true
			} else {
				if s.Remove(i) != want[i] {
					t.Fatalf("of %d: Remove(%d) returned the wrong value", n, i)
				}
				delete(want, i)
			}
		}
		var got []Index
		for i := range s.All {
			got = append(got, i)
		}
		if !slices.IsSorted(got) || len(got) != len(want) || s.Len() != len(want) {
			t.Errorf("of %d: %d samples %v, Len %d, want %d", n, len(got), got, s.Len(), len(want))
		}
		for _, i := range got {
			if !want[i] || !s.Has(i) {
				t.Errorf("of %d: sample %d is in the set, want it removed", n, i)
			}
		}
		if s.Add(Index(n)) || s.Has(Index(n)) || s.Has(None) || s.Next(Index(n)) != None {
			t.Errorf("of %d: a sample beyond the manifest is in the set", n)
		}
		c, err := s.Clone()
		if err != nil {
			t.Fatal(err)
		}
		if s.Clear(); s.Len() != 0 || s.Next(0) != None {
			t.Errorf("of %d: the set is not empty after Clear", n)
		}
		if copied := slices.Collect(c.All); !slices.Equal(copied, got) || c.Len() != len(got) {
			t.Errorf("of %d: the copy has %v, Len %d, want %v", n, copied, c.Len(), got)
		}
		c.Close()
		s.Close()
	}
	var none *Set
	if none.Has(0) || none.Len() != 0 || none.Add(0) {
		t.Error("the nil set is not empty")
	}
}
