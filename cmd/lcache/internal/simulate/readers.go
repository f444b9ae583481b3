package simulate

import (
	"context"
	"slices"
)

// readers has the number of the worker that reads each sample in each epoch. An epoch is one plane of bytes by sample, or two
// where numbers take two bytes. It is smaller than a count for each worker and sample where there are more workers than
// epochs, and everything that happens to a sample is found by going through the planes side by side.
type readers struct {
	samples int
	planes  [][]uint8  // by epoch and byte of the number: epoch·width + byte
	width   int        // bytes of a number
	dropped [][]uint32 // by epoch: the samples that no worker reads, ascending
}

// noReader is the reader of a sample that an epoch leaves out.
const noReader = ^uint32(0)

// widthOf is the number of bytes of a worker's number.
func widthOf(workers int) int {
	width := 1
	for workers > 1<<(8*width) {
		width++
	}
	return width
}

// readersBytes is the memory of the table.
func readersBytes(samples, epochs, workers float64, drops float64) float64 {
	return epochs * (samples*float64(widthOf(int(workers))) + 4*drops)
}

// newReaders replays the orders of all epochs.
func newReaders(ctx context.Context, x *exact) (*readers, error) {
	t := &readers{samples: len(x.sizes), width: widthOf(x.workers), planes: make([][]uint8, x.epochs*widthOf(x.workers)), dropped: make([][]uint32, x.epochs)}
	for epoch := range x.epochs {
		drops := len(x.sizes) - x.orders.used
		t.dropped[epoch] = make([]uint32, 0, drops)
		for b := range t.width {
			t.planes[epoch*t.width+b] = make([]uint8, t.samples)
		}
		err := x.orders.use(ctx, epoch, func(positions []uint32) {
			split(x.cores, t.samples, func(_, from, to int) { t.fill(epoch, positions, from, to, x) })
			for k, at := range positions {
				if int(at) >= x.orders.used {
					t.dropped[epoch] = append(t.dropped[epoch], uint32(k))
				}
			}
		})
		if err != nil {
			return nil, err
		}
		x.progress(0.3 * float64(epoch+1) / float64(x.epochs))
	}
	return t, nil
}

func (t *readers) fill(epoch int, positions []uint32, from, to int, x *exact) {
	for k := from; k < to; k++ {
		worker := positions[k] / uint32(x.batch) % uint32(x.workers)
		for b := range t.width {
			t.planes[epoch*t.width+b][k] = uint8(worker >> (8 * b))
		}
	}
}

// load copies the readers of the samples from … to-1: one row of all epochs after the other.
func (t *readers) load(rows []uint32, from, to int) {
	epochs := len(t.dropped)
	for e := range epochs {
		for b := range t.width {
			shift := 8 * b
			at := e
			for _, digit := range t.planes[e*t.width+b][from:to] {
				if b == 0 {
					rows[at] = uint32(digit)
				} else {
					rows[at] |= uint32(digit) << shift
				}
				at += epochs
			}
		}
		first, _ := slices.BinarySearch(t.dropped[e], uint32(from))
		for _, k := range t.dropped[e][first:] {
			if int(k) >= to {
				break
			}
			rows[(int(k)-from)*epochs+e] = noReader
		}
	}
}

// replace overwrites a sample's reader in an epoch with the place that serves the reader.
func (t *readers) replace(epoch, k int, from place) { t.planes[epoch*t.width][k] = uint8(from) }

// place is what replace left.
func (t *readers) place(epoch, k int) place { return place(t.planes[epoch*t.width][k]) }
