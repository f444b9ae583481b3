package plan

import (
	"fmt"
	"math"
	"time"
)

// WaitedEnough is how long consumers must have waited, in sum, before the prefetcher counts as too slow.
const WaitedEnough = 300 * time.Millisecond

// TooLate is the share of the epoch after which nothing is sorted into it any more.
const TooLate = 0.25

// The third constant of the rule of a beginning.
const (
	worthSorting = 1.25 // a sort must win by this factor: it costs a write of all the log holds
)

// ReconsiderEvery is the longest time after an answer of Wait until the question is worth asking again.
const ReconsiderEvery = 5 * time.Second

// ReconsiderAfter is when the question is worth asking again, after an answer of Wait to an epoch whose rest is expected to take some seconds: often enough that it
// is not TooLate by then. At 5 s an epoch of 20 s would have one answer only.
func ReconsiderAfter(restSeconds float64) time.Duration {
	if !(restSeconds >= 0) { // not known
		return ReconsiderEvery
	}
	return time.Duration(min(ReconsiderEvery.Seconds(), restSeconds/20) * float64(time.Second))
}

// Choice is what a job does that begins over a full log in another order.
type Choice int

// The choices. Whatever is chosen, the prefetcher reads by place until a sort delivers.
const (
	Wait  Choice = iota // read by place; ask again after ReconsiderEvery
	Sort                // sort the log into the epoch that is being read, beside the prefetcher
	Place               // read by place to the end of this epoch; do not ask again
)

// String returns the choice's name, as log messages say it.
func (c Choice) String() string {
	switch c {
	case Wait:
		return "wait"
	case Sort:
		return "sort"
	case Place:
		return "place"
	}
	return fmt.Sprintf("Choice(%d)", int(c))
}

// Beginning describes a job whose log is full, but laid out in another order than the one the job reads: the everyday
// second run. The engine fills it with rates it measured, a plan with rates from the device line. Rates are bytes/s; one
// of 0 (or below, or not a number) is not known yet.
type Beginning struct {
	Left      uint64        // R: bytes that this epoch still delivers from the log
	Held      uint64        // S: bytes that the log holds
	Waited    time.Duration // how long consumers have waited for the prefetcher, in sum
	Delivered float64       // the share of the epoch that is delivered, 0 to 1
	Last      bool          // the job ends with this epoch: nothing is written on for a next one

	Place float64 // the prefetcher's rate, reading by place
	Sort  float64 // the pass's rate when it sorts: each byte read and written counts once
	Read  float64 // the pass's rate when it only reads, in order

	Source    float64 // what the source delivers
	MissBytes uint64  // what the source still has to deliver in this epoch

	Device     DiskLine // the disk's limits; the zero value limits nothing, and the rates decide alone
	BlockBytes float64  // the pass's requests; 0 means 1 MiB
}

// Decide returns what the job should do now, the seconds that the rest of the epoch takes by place and with a sort
// (NaN while unknown), and a sentence that says why. It sorts if consumers have waited for the prefetcher for 0.3 s in
// sum and reading by place takes more than 1.25 times as long as sorting, until a quarter of the epoch is delivered.
func (b Beginning) Decide() (choice Choice, placeSeconds, sortSeconds float64, why string) {
	placeSeconds, sortSeconds = b.placeSeconds(), b.sortSeconds()
	times := fmt.Sprintf("the rest of the epoch takes %.3g s by place, %.3g s with a sort", placeSeconds, sortSeconds)
	switch {
	case b.Left == 0 || b.Held == 0:
		return Place, placeSeconds, sortSeconds, "the log holds nothing that this epoch still needs"
	case !(b.Delivered < TooLate): // a share that is not a number is too late as well
		return Place, placeSeconds, sortSeconds, fmt.Sprintf("a sort pays only before a quarter of the epoch is delivered, and %.0f %% is", 100*b.Delivered)
	case b.Waited < WaitedEnough:
		return Wait, placeSeconds, sortSeconds, fmt.Sprintf("consumers have waited only %.1f s for reads by place", b.Waited.Seconds())
	case math.IsNaN(placeSeconds) || math.IsNaN(sortSeconds):
		return Wait, placeSeconds, sortSeconds, b.unknown() + " is not known yet"
	case placeSeconds > worthSorting*sortSeconds:
		return Sort, placeSeconds, sortSeconds, times
	}
	return Wait, placeSeconds, sortSeconds, times + ": not enough to pay for a sort"
}

// placeSeconds is max(R/r_place, T_disk(read R+S, write S)): the prefetcher serves this epoch, and the pass lays out the
// next one beside it. In the last epoch there is no pass.
func (b Beginning) placeSeconds() float64 {
	left, held := float64(b.Left), float64(b.Held)
	seconds := at(left, b.Place)
	if !b.Last {
		seconds = max(seconds, b.disk(left+held, held))
	}
	return max(seconds, at(float64(b.MissBytes), b.Source))
}

// sortSeconds is S/b_sort + T_disk(read R, write S): the pass sorts all that the log holds, then reads the rest of this
// epoch in order and writes it on. In the last epoch it only reads: S/b_sort + R/b_read.
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

// unknown names the first rate that a decision lacks.
func (b Beginning) unknown() string {
	switch {
	case !known(b.Place):
		return "the rate of reads by place"
	case !known(b.Sort):
		return "the rate of a sort"
	case !known(b.Read):
		return "the rate of reads in order"
	case b.MissBytes > 0 && !known(b.Source):
		return "the source's rate"
	}
	return "the device's rate"
}

// at is the time that an amount takes at a measured rate: NaN while the rate is not known, 0 for nothing.
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
