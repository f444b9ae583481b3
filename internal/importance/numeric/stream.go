package numeric

import "math/bits"

// Uses of the random numbers of an epoch. Each use has its own stream.
const (
	ForOrder    = 1 // a whole order
	ForLow      = 2 // the L part, and the positions of the H part
	ForHigh     = 3 // the draw of the H part
	ForHighTurn = 4 // the shuffle of the H part
	ForUnits    = 5 // the order in which units of an epoch are loaded
	ForPick     = 6 // the loaded sample that is substituted for another one
	ForMix      = 7 // shuffling samples that are stored in the order of the source
)

// Stream is SplitMix64: random numbers for a seed, an epoch and a use that are the same in every language.
type Stream struct{ z uint64 }

const golden = 0x9E3779B97F4A7C15

// Mix is one step of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func Mix(z uint64) uint64 {
	z += golden
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// NewStream returns the random numbers of a seed and an epoch for one use, such as [ForOrder].
func NewStream(seed, epoch, use uint64) *Stream {
	return &Stream{Mix(Mix(Mix(seed)^epoch) ^ use)}
}

// Next returns the next 64 random bits.
func (s *Stream) Next() uint64 {
	out := Mix(s.z)
	s.z += golden
	return out
}

// Uniform returns a number that is at least 0 and less than 1.
func (s *Stream) Uniform() float64 { return float64(s.Next()>>11) * 0x1p-53 }

// Below returns a number that is at least 0 and less than n.
func (s *Stream) Below(n uint64) uint64 {
	high, _ := bits.Mul64(s.Next(), n)
	return high
}

// Shuffle is the shuffle of Fisher and Yates, starting at the end.
func (s *Stream) Shuffle(a []uint32) {
	for i := len(a) - 1; i >= 1; i-- {
		j := s.Below(uint64(i) + 1)
		a[i], a[j] = a[j], a[i]
	}
}
