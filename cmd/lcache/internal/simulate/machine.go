package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Table is a rate in MB/s by a number of threads or clients, interpolated between its points and flat outside them. In
// JSON it is an object: {"1": 330, "8": 2870}.
type Table []TablePoint

// TablePoint is one measured rate.
type TablePoint struct{ Count, Rate float64 }

// At returns the rate at a count; 0, which is to say no limit, for a table without points.
func (t Table) At(count float64) float64 {
	if len(t) == 0 {
		return 0
	}
	for i, p := range t {
		if count > p.Count {
			continue
		}
		if i == 0 || count == p.Count {
			return p.Rate
		}
		before := t[i-1]
		return before.Rate + (p.Rate-before.Rate)*(count-before.Count)/(p.Count-before.Count)
	}
	return t[len(t)-1].Rate
}

// NewTable sorts points into a table, and refuses invalid ones.
func NewTable(points map[float64]float64) (t Table, err error) {
	for _, count := range slices.Sorted(maps.Keys(points)) {
		rate := points[count]
		if !(count > 0 && count <= 1e12) || !(rate > 0 && rate <= largest) {
			return nil, fmt.Errorf("a rate of %g MB/s with %g clients: both must be positive numbers", rate, count)
		}
		t = append(t, TablePoint{count, rate})
	}
	return t, nil
}

// UnmarshalJSON reads an object of rates by count.
func (t *Table) UnmarshalJSON(text []byte) error {
	var named map[string]float64
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	points := map[float64]float64{}
	for name, rate := range named {
		count, err := strconv.ParseFloat(name, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number of threads or clients", name)
		}
		points[count] = rate
	}
	table, err := NewTable(points)
	*t = table
	return err
}

// MarshalJSON writes an object of rates by count.
func (t Table) MarshalJSON() ([]byte, error) {
	named := map[string]float64{}
	for _, p := range t {
		named[strconv.FormatFloat(p.Count, 'g', -1, 64)] = p.Rate
	}
	return json.Marshal(named)
}

// Classes are the kinds of local storage: class 0 is the staging buffer, class 1 memory, class 2 the SSD.
const Classes = 3

// Machine is a cluster as NoPFS's performance model sees it (§4). Sizes are MB (10^6 bytes), rates MB/s of one worker;
// a rate of 0 limits nothing.
type Machine struct {
	Workers    int              `json:"workers"`    // N
	Compute    float64          `json:"compute"`    // c: what one worker consumes
	Preprocess float64          `json:"preprocess"` // β: what its CPUs prepare
	Network    float64          `json:"network"`    // b_c
	Threads    [Classes]float64 `json:"threads"`    // p_j: prefetch threads of each class
	Capacity   [Classes]float64 `json:"capacity"`   // d_j
	Read       [Classes]Table   `json:"read"`       // r_j: all threads of a class together
	WriteStage Table            `json:"write"`      // w_0; empty means as Read[0]
	PFS        Table            `json:"pfs"`        // t: what all clients of the source get together, by their number
}

// mostWorkers bounds simulations worker by worker.
const mostWorkers = 100_000

func (m Machine) check() error {
	if m.Workers < 1 || m.Workers > mostWorkers {
		return fmt.Errorf("workers is %d, and must lie between 1 and %d", m.Workers, mostWorkers)
	}
	for name, x := range map[string]float64{
		"compute": m.Compute, "preprocess": m.Preprocess, "network": m.Network,
		"threads[0]": m.Threads[0], "threads[1]": m.Threads[1], "threads[2]": m.Threads[2],
		"capacity[0]": m.Capacity[0], "capacity[1]": m.Capacity[1], "capacity[2]": m.Capacity[2],
	} {
		if !(x >= 0 && x <= largest) {
			return fmt.Errorf("%s is %g, and must lie between 0 and %g", name, x, largest)
		}
	}
	if m.Compute == 0 {
		return errors.New("compute is 0: say how many MB/s one worker consumes")
	}
	if len(m.PFS) == 0 {
		return errors.New("pfs is empty: give the source's rate by the number of its clients")
	}
	return nil
}

// rates are the machine's rates in seconds per MB; 0: unlimited.
type rates struct {
	compute, stage float64          // c and w_0
	prepare        float64          // β
	network        float64          // b_c
	class          [Classes]float64 // r_j(p_j), all threads together
	thread         [Classes]float64 // r_j(p_j)/p_j, one thread
	remote         [Classes]float64 // one thread, from another worker
	pfs            []float64        // t(γ)/γ, by γ
	p              [Classes]float64 // p_j, at least 1
}

func (m Machine) rates() rates {
	r := rates{compute: per(1, m.Compute), prepare: per(1, m.Preprocess), network: per(1, m.Network), pfs: make([]float64, m.Workers+1)}
	for j := range Classes {
		r.p[j] = max(1, m.Threads[j])
		r.class[j] = per(1, m.Read[j].At(r.p[j]))
		r.thread[j] = r.class[j] * r.p[j]
		r.remote[j] = max(r.network, r.thread[j])
	}
	r.stage = r.class[0]
	if len(m.WriteStage) > 0 {
		r.stage = per(1, m.WriteStage.At(r.p[0]))
	}
	for g := 1; g <= m.Workers; g++ {
		r.pfs[g] = per(float64(g), m.PFS.At(float64(g)))
	}
	return r
}

// write is what moving a MB into the staging buffer costs one thread: preparing it, and its share of the buffer.
func (r rates) write() float64 { return max(r.prepare, r.stage*r.p[0]) }

// all is the number of workers, and so the index of the source's rate when all of them read.
func (r rates) all() int { return len(r.pfs) - 1 }

// Consume returns when each sample is consumed, and when the last one is done (NoPFS §4): a sample is consumed once it is
// available and the one before it is done. Times are seconds, sizes MB, compute MB/s.
func Consume(avail, sizes []float64, compute float64) (t []float64, end float64, err error) {
	if len(avail) != len(sizes) || len(avail) == 0 || !(compute > 0) {
		return nil, 0, fmt.Errorf("%d times, %d sizes and %g MB/s: the first two must be as many, and all positive", len(avail), len(sizes), compute)
	}
	consumed, late := 0.0, math.Inf(-1)
	for i, a := range avail {
		late = max(late, a-consumed) // how far availability has been behind so far
		t = append(t, consumed+late)
		consumed += sizes[i] / compute
	}
	return t, consumed + late, nil
}

// per is the time that an amount takes at a rate, where a rate of 0 does not bind.
func per(amount, rate float64) float64 {
	if rate == 0 || amount == 0 {
		return 0
	}
	return amount / rate
}
