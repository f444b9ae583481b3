package score

import (
	"math"

	"lcache/internal/importance/numeric"
)

// Elastic moves memory from the importance cache to the nodes as the training settles (SpiderCache Eq. 5–8). Once the spread of the values decreases,
// the ratio falls; it falls faster if accuracy gains less.
type Elastic struct {
	start, end, gamma float64
	m                 int // number of epochs for the slope and the gain
	ratio             float64
	epoch             int
	falling           bool // the spread has begun to decrease; never set back to false
	sigma             []float64
	accuracy          []float64 // of the epochs that reported one
}

// NewElastic returns a ratio that goes from start to end. gamma is the gain of accuracy per epoch, as a fraction, at
// which half of the delay applies. m is the number of epochs that are considered.
func NewElastic(start, end, gamma float64, m int) *Elastic {
	return &Elastic{start: start, end: end, gamma: gamma, m: max(m, 1), ratio: start}
}

// Ratio returns the importance cache's share of the memory.
func (e *Elastic) Ratio() float64 { return e.ratio }

// EndEpoch adds one epoch: the standard deviation of all values, and the accuracy, which is nil if it was not
// reported. epochs is the number of epochs of the training. While that is unknown, the ratio does not change.
func (e *Elastic) EndEpoch(sigma float64, accuracy *float64, epochs int) float64 {
	t := e.epoch
	e.epoch++
	if e.sigma = append(e.sigma, sigma); len(e.sigma) > e.m {
		e.sigma = e.sigma[1:]
	}
	if accuracy != nil {
		// The smoothing needs m epochs, and two more at the far end.
		if e.accuracy = append(e.accuracy, *accuracy); len(e.accuracy) > e.m+1+window {
			e.accuracy = e.accuracy[1:]
		}
	}
	if len(e.sigma) == e.m && slope(e.sigma) < 0 {
		e.falling = true
	}
	if !e.falling || epochs <= 0 {
		return e.ratio
	}
	progress := min(float64(t)/float64(epochs), 1)
	e.ratio = min(e.ratio, e.start-float64((e.start-e.end)*math.Pow(progress, 1+e.delay())))
	return e.ratio
}

// delay returns u of Eq. 7. It is near 1, the slowest, while accuracy improves. It is 1 while too few accuracies are
// known.
func (e *Elastic) delay() float64 {
	if len(e.accuracy) < e.m+1 {
		return 1
	}
	last := len(e.accuracy) - 1
	gain := max(0, (smoothed(e.accuracy, last)-smoothed(e.accuracy, last-e.m))/float64(e.m))
	if gain == 0 {
		return 0
	}
	return gain / (e.gamma + gain)
}

// slope returns the slope of the least-squares line.
func slope(y []float64) float64 {
	n := float64(len(y))
	meanX, meanY := (n-1)/2, numeric.Total(y)/n
	up, down := 0.0, 0.0
	for i, v := range y {
		x := float64(i) - meanX
		up += float64(x * (v - meanY))
		down += float64(x * x)
	}
	if down == 0 {
		return 0
	}
	return up / down
}

// window is the number of values for smoothing.
const window = 5

// savitzkyGolay has the coefficients of a least-squares parabola through five values (Savitzky, Golay 1964), for its value at each of the five points,
// times 35. The middle row is for points with two neighbours on both sides.
var savitzkyGolay = [window][window]float64{
	{31, 9, -3, -5, 3},
	{9, 13, 12, 6, -5},
	{-3, 12, 17, 12, -3},
	{-5, 6, 12, 13, 9},
	{3, -5, -3, 9, 31},
}

// smoothed returns value i of a after a Savitzky–Golay filter of window 5 and order 2. With fewer than five values it returns the value itself.
func smoothed(a []float64, i int) float64 {
	if len(a) < window {
		return a[i]
	}
	from := max(0, min(i-2, len(a)-window))
	sum := 0.0
	for k, c := range savitzkyGolay[i-from] {
		sum += float64(c * a[from+k])
	}
	return sum / 35
}
