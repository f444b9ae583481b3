package plan

import (
	"fmt"
	"math"
	"time"
)

// WaitedEnough is how long the training loops must have waited, in sum, before the prefetcher counts as too slow.
const WaitedEnough = 300 * time.Millisecond

// TooLate is the share of an epoch after which a sort of the log into that epoch is too late.
const TooLate = 0.25

// worthSorting is the factor by which a sort must be faster, because it rewrites the whole log.
const worthSorting = 1.25

// ReconsiderEvery is the longest time until the choice should be made again after Wait.
const ReconsiderEvery = 5 * time.Second

// ReconsiderAfter returns the time until the choice should be made again after Wait, for an epoch that is expected to take restSeconds more. It is short
// enough for several choices before TooLate: with 5 s, an epoch of 20 s would have only one.
func ReconsiderAfter(restSeconds float64) time.Duration {
	if !(restSeconds >= 0) { // unknown
		return ReconsiderEvery
	}
	return time.Duration(min(ReconsiderEvery.Seconds(), restSeconds/20) * float64(time.Second))
}

// Choice is the decision for a job that begins over a full log in another order.
type Choice int

// The choices. In each case the prefetcher uses random reads until a sort delivers.
const (
	Wait    Choice = iota // use random reads; choose again after ReconsiderEvery
	Sort                  // sort the log into the current epoch, while the prefetcher reads
	InPlace               // use random reads to the end of this epoch; do not choose again
)

// String returns the choice's name for log messages.
func (c Choice) String() string {
	switch c {
	case Wait:
		return "wait"
	case Sort:
		return "sort"
	case InPlace:
		return "in place"
	}
	return fmt.Sprintf("Choice(%d)", int(c))
}

// Beginning describes a job whose log is full, but in another order than the job's. That is so in every second run
// with another seed. The engine fills it with measured rates, a plan with rates of the device. Rates are in bytes/s.
// A rate of 0, a negative rate or NaN is unknown.
type Beginning struct {
	Left      uint64        // R: bytes that this epoch still delivers from the log
	Held      uint64        // S: bytes that the log holds
	Waited    time.Duration // how long the training loops have waited for the prefetcher, in sum
	Delivered float64       // the delivered share of the epoch, 0 to 1
	Last      bool          // the job ends with this epoch: no next epoch is written

	Place float64 // the prefetcher's rate with random reads
	Sort  float64 // the scan's rate during a sort: each byte counts once, although it is read and written
	Read  float64 // the scan's rate without writing

	Source    float64 // the source's rate
	MissBytes uint64  // bytes that the source still has to deliver in this epoch

	Device     DiskLine // the disk's limits; the zero value: only the rates decide
	BlockBytes float64  // size of the scan's requests; 0 means 1 MiB
}

// Decide returns the choice for now, the seconds that the rest of the epoch takes with random reads and with a sort
// (NaN if unknown), and the reason as a sentence. It chooses a sort if three conditions hold: the training loops have
// waited for the prefetcher for 0.3 s in sum, random reads take more than 1.25 times as long as a sort, and less than
// a quarter of the epoch is delivered.
func (b Beginning) Decide() (choice Choice, placeSeconds, sortSeconds float64, why string) {
	placeSeconds, sortSeconds = b.placeSeconds(), b.sortSeconds()
	times := fmt.Sprintf("the rest of the epoch takes %.3g s with random reads, %.3g s with a sort", placeSeconds, sortSeconds)
	switch {
	case b.Left == 0 || b.Held == 0:
		return InPlace, placeSeconds, sortSeconds, "the log holds nothing that this epoch still needs"
	case !(b.Delivered < TooLate): // NaN counts as too late
		return InPlace, placeSeconds, sortSeconds, fmt.Sprintf("a sort pays only before a quarter of the epoch is delivered, and %.0f %% is", 100*b.Delivered)
	case b.Waited < WaitedEnough:
		return Wait, placeSeconds, sortSeconds, fmt.Sprintf("the training loops have waited only %.1f s for random reads", b.Waited.Seconds())
	case math.IsNaN(placeSeconds) || math.IsNaN(sortSeconds):
		return Wait, placeSeconds, sortSeconds, b.unknown() + " is not known yet"
	case placeSeconds > worthSorting*sortSeconds:
		return Sort, placeSeconds, sortSeconds, times
	}
	return Wait, placeSeconds, sortSeconds, times + ": not enough to pay for a sort"
}

// placeSeconds returns max(R/r_place, T_disk(read R+S, write S)): the prefetcher serves this epoch, and the scan lays out the next one at the same time.
// The last epoch has no scan.
func (b Beginning) placeSeconds() float64 {
	left, held := float64(b.Left), float64(b.Held)
	seconds := at(left, b.Place)
	if !b.Last {
		seconds = max(seconds, b.disk(left+held, held))
	}
	return max(seconds, at(float64(b.MissBytes), b.Source))
}

// sortSeconds returns S/b_sort + T_disk(read R, write S): the scan sorts the whole log, then reads the rest of this epoch in order and writes it to the
// next log. In the last epoch it only reads: S/b_sort + R/b_read.
func (b Beginning) sortSeconds() float64 {
	left, held := float64(b.Left), float64(b.Held)
	then := at(left, b.Read)
	if !b.Last {
		then = max(then, b.disk(left, held))
	}
	return max(at(held, b.Sort)+then, at(float64(b.MissBytes), b.Source))
}

func (b Beginning) disk(read, write float64) float64 {
	request := b.BlockBytes
	if request <= 0 {
		request = defaultBlock
	}
	return b.Device.Seconds(Transfer{read, request}, Transfer{write, request})
}

// unknown names the first rate that a decision needs and that is unknown.
func (b Beginning) unknown() string {
	switch {
	case !known(b.Place):
		return "the rate of random reads"
	case !known(b.Sort):
		return "the rate of a sort"
	case !known(b.Read):
		return "the rate of sequential reads"
	case b.MissBytes > 0 && !known(b.Source):
		return "the source's rate"
	}
	return "the device's rate"
}

// at returns the time for an amount at a measured rate. It is NaN if the rate is unknown, and 0 for an amount of 0.
func at(amount, rate float64) float64 {
	switch {
	case amount == 0:
		return 0
	case !known(rate):
		return math.NaN()
	}
	return amount / rate
}

func known(rate float64) bool {
	return rate > 0 // false for NaN, too
}
