package shuffle

const (
	mtWords  = 624 // words of state
	mtShift  = 397 // distance of the word that a twist mixes in
	mtMatrix = 0x9908b0df
)

// mt19937 is the Mersenne Twister that torch, NumPy's RandomState and Python's random share. They differ only in how
// they seed it and use its 32-bit words.
//
// It is a plain value: assigning it copies the generator.
type mt19937 struct {
	state [mtWords]uint32
	next  int // index of the word that the next draw tempers; mtWords: twist first
}

// seed initialises the state from one word (init_genrand).
func (m *mt19937) seed(x uint32) {
	m.state[0] = x
	for j := 1; j < mtWords; j++ {
		x = 1812433253*(x^x>>30) + uint32(j)
		m.state[j] = x
	}
	m.next = mtWords
}

// seedWords initialises the state from a list of words (init_by_array). key must not be empty.
func (m *mt19937) seedWords(key []uint32) {
	m.seed(19650218)
	s := &m.state
	i, j := 1, 0
	for range max(mtWords, len(key)) {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + key[j] + uint32(j)
		if i++; i == mtWords {
			s[0], i = s[mtWords-1], 1
		}
		if j++; j == len(key) {
			j = 0
		}
	}
	for range mtWords - 1 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		if i++; i == mtWords {
			s[0], i = s[mtWords-1], 1
		}
	}
	s[0] = 1 << 31
	m.next = mtWords
}

// twist makes the next 624 untempered words.
func (m *mt19937) twist() {
	s := &m.state
	mix := func(hi, lo uint32) uint32 {
		// -(lo&1) selects the matrix without a branch: the bit is random, so a branch would be mispredicted half of the time.
		return (hi&(1<<31)|lo&(1<<31-1))>>1 ^ -(lo&1)&mtMatrix
	}
	for k := 0; k < mtWords-mtShift; k++ {
		s[k] = s[k+mtShift] ^ mix(s[k], s[k+1])
	}
	for k := mtWords - mtShift; k < mtWords-1; k++ {
		s[k] = s[k+mtShift-mtWords] ^ mix(s[k], s[k+1])
	}
	s[mtWords-1] = s[mtShift-1] ^ mix(s[mtWords-1], s[0])
	m.next = 0
}

// temper turns a word of the state into the word that is drawn.
func temper(y uint32) uint32 {
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// uint32 draws one word.
func (m *mt19937) uint32() uint32 {
	if m.next >= mtWords {
		m.twist()
	}
	y := m.state[m.next]
	m.next++
	return temper(y)
}

// run draws at least one and at most limit words at once and returns them untempered. The slice is a view
// of the state: it is valid until the next draw. limit must be positive.
func (m *mt19937) run(limit int) []uint32 {
	if m.next >= mtWords {
		m.twist()
	}
	from := m.next
	m.next += min(limit, mtWords-from)
	return m.state[from:m.next]
}

// skip discards k draws. It costs one twist for every 624 of them and no tempering.
func (m *mt19937) skip(k uint64) {
	for k > 0 {
		if m.next >= mtWords {
			m.twist()
		}
		step := min(k, uint64(mtWords-m.next))
		m.next += int(step)
		k -= step
	}
}
