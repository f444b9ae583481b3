package compress

import "math"

// A Trial packs some of a dataset's samples, drawn evenly, and says from those how much space all of them take. The zero Trial has
// seen none.
type Trial struct {
	Align int // of samples in the log, as in FORMAT

	p                  packer
	n, x, y            float64 // samples, and their bytes, plain and stored, padded
	xx, xy, yy         float64
	plainSum, savedSum float64 // without padding
}

// Add packs one sample.
func (t *Trial) Add(plain []byte) {
	x := float64(padded(uint32(len(plain)), uint32(t.Align)))
	y := x
	t.plainSum += float64(len(plain))
	if data, ok := t.p.pack(plain, uint32(t.Align)); ok {
		y = float64(padded(uint32(len(data)), uint32(t.Align)))
		t.savedSum += float64(len(plain) - len(data))
	}
	t.n++
	t.x, t.y = t.x+x, t.y+y
	t.xx, t.xy, t.yy = t.xx+x*x, t.xy+x*y, t.yy+y*y
}

// Saves is the share of the bytes seen that packing saves: 0 is none.
func (t *Trial) Saves() float64 {
	if t.plainSum == 0 {
		return 0
	}
	return t.savedSum / t.plainSum
}

// Stored estimates the bytes in the log of a dataset of that many samples with plain padded bytes: plain times the ratio of
// those seen, and three standard deviations of that estimate (of a ratio, with the correction for a finite population). One
// dataset in a thousand takes more.
func (t *Trial) Stored(plain uint64, samples int) uint64 {
	if t.x == 0 {
		return plain
	}
	r := t.y / t.x
	total := r * float64(plain)
	if n := float64(samples); t.n < n {
		if t.n < 2 {
			return plain
		}
		residual := max(0, t.yy-2*r*t.xy+r*r*t.xx) / (t.n - 1)
		total += 3 * n * math.Sqrt((1-t.n/n)*residual/t.n)
	}
	return min(plain, uint64(math.Ceil(total)))
}
