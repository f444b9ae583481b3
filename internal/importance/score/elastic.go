package score

import (
	"math"

	"lcache/internal/importance/numeric"
)

// Elastic moves memory from the importance cache to the homophily cache while training settles (SpiderCache Eq. 5–8): once the values begin to spread
// less the ratio falls, the faster the less accuracy still gains.
type Elastic struct {
	start, end, gamma float64
	m                 int // epochs that the slope and the gain are taken over
	ratio             float64
	epoch             int
	falling           bool // the spread has begun to fall, and this stays so
	sigma             []float64
	accuracy          []float64 // those that were reported
}

// NewElastic returns the ratio that goes from start to end. gamma is the gain of accuracy an epoch at which half of the delay is reached, as a
// fraction; m is how many epochs are looked at.
func NewElastic(start, end, gamma float64, m int) *Elastic {
	return &Elastic{start: start, end: end, gamma: gamma, m: max(m, 1), ratio: start}
}

// Ratio is the importance cache's share of the memory.
func (e *Elastic) Ratio() float64 { return e.ratio }

// EndEpoch takes the standard deviation of all values and the accuracy of one more epoch, nil if it was not reported. epochs is how many there
// will be; the ratio stays while that is not known.
func (e *Elastic) EndEpoch(sigma float64, accuracy *float64, epochs int) float64 {
	t := e.epoch
	e.epoch++
	if e.sigma = append(e.sigma, sigma); len(e.sigma) > e.m {
		e.sigma = e.sigma[1:]
	}
	if accuracy != nil {
		// What smoothing looks at: m epochs back, and two more on its far side.
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

// delay is u of Eq. 7: near 1, which is slowest, while accuracy gains; 1 while too few accuracies are known.
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

// slope is that of the line of least squares.
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

// window is how many values the smoothing looks at.
const window = 5

// savitzkyGolay are the coefficients of a parabola of least squares through five values (Savitzky, Golay 1964), for its value at each of the
// five places, times 35. The middle row is for places that have two neighbours on both sides.
var savitzkyGolay = [window][window]float64{
	{31, 9, -3, -5, 3},
	{9, 13, 12, 6, -5},
	{-3, 12, 17, 12, -3},
	{-5, 6, 12, 13, 9},
	{3, -5, -3, 9, 31},
}

// smoothed is value i of a after a Savitzky–Golay filter of window 5 and order 2. With fewer than five values it is the value itself.
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
