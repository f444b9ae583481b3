package draw

import (
	"fmt"
	"math"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// A Draw is the method that draws an epoch from targets.
type Draw string

// Draws.
const (
	Systematic  Draw = "systematic"  // each sample is drawn ⌊t⌋ or ⌈t⌉ times
	Multinomial Draw = "multinomial" // each position is drawn independently, as in the papers
)

// Length returns the number of samples in an epoch with these targets: ⌊Σt + ½⌋.
func Length(targets []float64) int { return int(math.Floor(numeric.Total(targets) + 0.5)) }

// Order draws an epoch: indices in reading order. The result depends only on the arguments, and is bit for bit the
// same on every machine. Order overwrites targets with counts. The caller frees the result with offheap.Free.
func Order(targets []float64, seed uint64, epoch int, d Draw) ([]uint32, error) {
	s := numeric.NewStream(seed, uint64(epoch), numeric.ForOrder)
	order, err := drawn(targets, s, d)
	if err != nil {
		return nil, err
	}
	s.Shuffle(order)
	return order, nil
}

// Plain returns an epoch with each sample once, for epochs before any observation.
func Plain(n int, seed uint64, epoch int) ([]uint32, error) {
	return permutation(n, numeric.NewStream(seed, uint64(epoch), numeric.ForOrder))
}

// drawn returns the samples of an epoch in ascending order.
func drawn(targets []float64, s *numeric.Stream, d Draw) ([]uint32, error) {
	m := Length(targets)
	if m < 0 || m > math.MaxUint32-1 {
		return nil, fmt.Errorf("draw an epoch: the targets sum to %v samples", numeric.Total(targets))
	}
	switch d {
	case Systematic:
		return systematic(targets, m, s)
	case Multinomial:
		return multinomial(targets, m, s)
	}
	return nil, fmt.Errorf("draw %q: use %s or %s", d, Systematic, Multinomial)
}

// systematic takes m samples at equal distances along all samples in a random order. The first distance starts at a
// random position.
func systematic(t []float64, m int, s *numeric.Stream) ([]uint32, error) {
	pi, err := permutation(len(t), s)
	if err != nil {
		return nil, err
	}
	u := s.Uniform()
	scale := float64(m) / numeric.Total(t)
	reached, before := 0.0, 0
	for k, i := range pi {
		if m > 0 {
			reached += float64(t[i] * scale)
		}
		c := min(m, max(0, int(math.Ceil(reached-u))))
		if k == len(pi)-1 {
			c = m
		}
		t[i] = float64(c - before)
		before = c
	}
	return expand(t, m, pi)
}

// permutation shuffles all indices.
func permutation(n int, s *numeric.Stream) ([]uint32, error) {
	a, err := offheap.MakeDense[uint32](n)
	if err != nil {
		return nil, err
	}
	for i := range a {
		a[i] = uint32(i)
	}
	s.Shuffle(a)
	return a, nil
}

// multinomial draws each of m samples independently: the first sample, in index order, at which the cumulative share
// of Σt exceeds a random number. A table of starting points shortens the search.
func multinomial(t []float64, m int, s *numeric.Stream) ([]uint32, error) {
	n := len(t)
	count, err := offheap.MakeDense[uint32](n)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(count)
	last := 0
	sum := 0.0
	for i, x := range t {
		if x > 0 {
			last = i
		}
		sum += x
		t[i] = sum
	}
	starts, err := offheap.MakeDense[uint32](n)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(starts)
	perStart := sum / float64(n)
	for i, k := 0, 0; k < n; k++ {
		for i < n-1 && t[i] <= float64(k)*perStart {
			i++
		}
		starts[k] = uint32(i)
	}
	for range m {
		x := float64(s.Uniform() * sum)
		i := int(starts[min(int(x/perStart), n-1)])
		for i > 0 && t[i-1] > x {
			i--
		}
		for i < last && t[i] <= x {
			i++
		}
		count[i]++
	}
	for i, c := range count {
		t[i] = float64(c)
	}
	return expand(t, m, nil)
}

// expand writes each index as often as it was drawn, in ascending order. It reuses room if room has the right length.
func expand(count []float64, m int, room []uint32) ([]uint32, error) {
	if m != len(room) {
		offheap.Free(room)
		var err error
		if room, err = offheap.MakeDense[uint32](m); err != nil {
			return nil, err
		}
	}
	at := 0
	for i, c := range count {
		for range int(c) {
			room[at] = uint32(i)
			at++
		}
	}
	return room, nil
}

// Striped makes the length of an order a multiple of the world size, so that all ranks get the same number of
// samples. It repeats the beginning; with drop, it cuts the end.
func Striped(order []sample.Index, world int, drop bool) []sample.Index {
	rest := len(order) % world
	if rest == 0 {
		return order
	}
	if drop {
		return order[:len(order)-rest]
	}
	out := append(make([]sample.Index, 0, len(order)+world-rest), order...)
	for k := range world - rest {
		out = append(out, order[k%len(order)])
	}
	return out
}
