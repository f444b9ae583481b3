package compress

import "math"

// A Trial compresses some of a dataset's samples, chosen at even distances, and estimates the space for all of them.
// The zero Trial is ready for use.
type Trial struct {
	Align int // alignment of samples in the log, as in FORMAT

	p                  packer
	n, x, y            float64 // n: samples; x, y: their plain and stored bytes, padded
	xx, xy, yy         float64
	plainSum, savedSum float64 // not padded
}

// Add compresses one sample.
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

// Saves returns the share of bytes that compression saves; 0 is none.
func (t *Trial) Saves() float64 {
	if t.plainSum == 0 {
		return 0
	}
	return t.savedSum / t.plainSum
}

// Stored estimates the bytes in the log for a dataset with this many samples, of plain padded bytes in total. The
// estimate is plain times the ratio of the tried samples, plus three standard deviations of a ratio estimate,
// corrected for a finite population. One dataset in a thousand takes more.
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
