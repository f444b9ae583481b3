package numeric

import (
	"fmt"
	"math/bits"
)

// Total returns the sum in index order.
func Total(t []float64) float64 {
	sum := 0.0
	for _, x := range t {
		sum += x
	}
	return sum
}

// MulDiv returns a × b / c without overflow, rounded down; a, b ≥ 0 and c > b.
func MulDiv(a, b, c int64) int64 {
	if a <= 0 || b < 0 || c <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		panic(fmt.Sprintf("%d × %d / %d is out of range", a, b, c))
	}
	q, _ := bits.Div64(high, low, uint64(c))
	return int64(q)
}
