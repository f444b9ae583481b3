package staging

import (
	"sync/atomic"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// farBit of an address means that the sample did not come from the log, and that no Take has returned it yet. origins has its origin.
const farBit = 1

// origins has an origin for each sample, in two bits. It is read only for addresses with farBit, so it costs nothing for samples from the log.
type origins []uint32

const (
	originBits    = 2
	originMask    = 1<<originBits - 1
	originsInWord = 32 / originBits
)

const _ = 1<<originBits - sample.Origins // does not compile if an origin needs more bits

func newOrigins(samples int) (origins, error) {
	return offheap.Make[uint32]((samples + originsInWord - 1) / originsInWord)
}

func (o origins) at(index sample.Index) (word *uint32, shift uint) {
	return &o[index/originsInWord], uint(index%originsInWord) * originBits
}

func (o origins) of(index sample.Index) sample.Origin {
	word, shift := o.at(index)
	return sample.Origin(atomic.LoadUint32(word) >> shift & originMask)
}

// note sets a sample's origin. If further is set, it keeps the old origin if that is further away.
func (o origins) note(index sample.Index, from sample.Origin, further bool) {
	if further {
		from = max(from, o.of(index))
	}
	word, shift := o.at(index)
	for {
		was := atomic.LoadUint32(word)
		if atomic.CompareAndSwapUint32(word, was, was&^(originMask<<shift)|uint32(from)<<shift) {
			return
		}
	}
}

// originOf returns the origin of a sample with the given address.
func (s *Staging) originOf(index sample.Index, address uint32) sample.Origin {
	if address&farBit == 0 {
		return sample.FromLog
	}
	return s.origins.of(index)
}
