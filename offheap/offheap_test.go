package offheap

import "testing"

func TestMakeFree(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1 << 20} {
		s, err := Make[uint32](n)
		if err != nil {
			t.Fatal(err)
		}
		if len(s) != n {
			t.Fatalf("len = %d, want %d", len(s), n)
		}
		for i := range s {
			if s[i] != 0 {
				t.Fatalf("element %d of a fresh array is %d", i, s[i])
			}
			s[i] = uint32(i)
		}
		Free(s)
	}
	Free[uint64](nil)
}
