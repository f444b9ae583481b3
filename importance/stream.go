package importance

import "math/bits"

// Streams of one epoch: which random numbers are for what.
const (
	streamOrder    = 1 // a whole order
	streamLow      = 2 // the L part, and the positions of the H part
	streamHigh     = 3 // the draw of the H part
	streamHighTurn = 4 // the shuffle of the H part
	streamUnits    = 5 // the order in which an epoch's units are loaded
	streamPick     = 6 // which loaded sample stands in for another one
	streamMix      = 7 // samples that lie in the order of the source
)

// stream is SplitMix64: random numbers that are the same in every language, for a seed, an epoch and a use.
type stream struct{ z uint64 }

const golden = 0x9E3779B97F4A7C15

// mix is one step of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func mix(z uint64) uint64 {
	z += golden
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func newStream(seed, epoch, use uint64) *stream {
	return &stream{mix(mix(mix(seed)^epoch) ^ use)}
}

func (s *stream) next() uint64 {
	out := mix(s.z)
	s.z += golden
	return out
}

// uniform is at least 0 and less than 1.
func (s *stream) uniform() float64 { return float64(s.next()>>11) * 0x1p-53 }

// below is at least 0 and less than n.
func (s *stream) below(n uint64) uint64 {
	high, _ := bits.Mul64(s.next(), n)
	return high
}

// shuffle is Fisher and Yates's, from the end.
func (s *stream) shuffle(a []uint32) {
	for i := len(a) - 1; i >= 1; i-- {
		j := s.below(uint64(i) + 1)
		a[i], a[j] = a[j], a[i]
	}
}
