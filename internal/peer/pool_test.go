package peer

import "testing"

func TestPool(t *testing.T) {
	p := &pool{}
	for _, n := range []int{0, 1, 1024, 1025, 16 << 10, 100_000, 1 << 20, 1<<21 - 1, 1 << 21, 1<<21 + 1} {
		b := p.Get(n)
		if len(*b) != n || cap(*b) < n || n > 1024 && n <= 1<<mostPooled && cap(*b) >= 2*n {
			t.Errorf("of %d bytes: length %d, capacity %d", n, len(*b), cap(*b))
		}
		*b = (*b)[:n/2] // as gRPC does with padded frames
		p.Put(b)
		if again := p.Get(n); len(*again) != n {
			t.Errorf("again of %d bytes: %d", n, len(*again))
		}
	}
	strange := make([]byte, 100, 3000)
	p.Put(&strange) // not its own: no Get may return it
	if b := p.Get(2500); cap(*b) < 2500 {
		t.Errorf("a buffer with capacity %d came back", cap(*b))
	}
}
