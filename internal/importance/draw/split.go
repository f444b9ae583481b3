package draw

import (
	"fmt"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// LowPart draws an epoch whose H part is still open. The positions of L-samples are final and can be laid out in the
// log. The positions of H-samples hold sample.None. low has the targets of all samples, with 0 for H-samples; LowPart
// overwrites it. The caller frees the order with offheap.Free.
func LowPart(low []float64, high int, seed uint64, epoch int, d Draw) ([]uint32, error) {
	s := numeric.NewStream(seed, uint64(epoch), numeric.ForLow)
	drawnLow, err := drawn(low, s, d)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(drawnLow)
	s.Shuffle(drawnLow)
	order, err := offheap.MakeDense[uint32](high + len(drawnLow))
	if err != nil {
		return nil, err
	}
	for k := range order { // marks of H and L positions, shuffled below; the first ones are H
		order[k] = 0
		if k < high {
			order[k] = sample.None
		}
	}
	s.Shuffle(order)
	at := 0
	for k, mark := range order {
		if mark != sample.None {
			order[k] = drawnLow[at]
			at++
		}
	}
	return order, nil
}

// FillHigh draws the open positions of an order from [LowPart], once the values of the H part are fresh. high has the
// samples that may be drawn. targets has their targets: FillHigh scales them to the number of open positions, and
// then overwrites them.
func FillHigh(order []uint32, high []sample.Index, targets []float64, seed uint64, epoch int, d Draw) error {
	if len(high) != len(targets) {
		return fmt.Errorf("fill the H part: %d targets for %d samples", len(targets), len(high))
	}
	open := 0
	for _, i := range order {
		if i == sample.None {
			open++
		}
	}
	if open == 0 {
		return nil
	}
	if len(high) == 0 {
		return fmt.Errorf("fill the H part: %d positions are open, but H is empty", open)
	}
	weigh(targets, float64(open), 0, targets)
	picks, err := drawn(targets, numeric.NewStream(seed, uint64(epoch), numeric.ForHigh), d)
	if err != nil {
		return err
	}
	defer offheap.Free(picks)
	if len(picks) != open {
		return fmt.Errorf("fill the H part: %d samples drawn for %d positions", len(picks), open)
	}
	numeric.NewStream(seed, uint64(epoch), numeric.ForHighTurn).Shuffle(picks)
	at := 0
	for k, i := range order {
		if i == sample.None {
			order[k] = high[picks[at]]
			at++
		}
	}
	return nil
}
