package shuffle

import "sync/atomic"

// stream is an object of the framework (a sampler, a loader, a generator) before its next epoch. It carries its
// state from one epoch to the next.
type stream interface {
	// next appends the epoch's order to dst[:0] and moves on.
	next(dst []uint32) ([]uint32, error)
	// skip moves past the epoch: it draws the same numbers as the epoch and keeps nothing.
	skip()
	// clone returns an independent copy of the object in its current state.
	clone() stream
}

// live returns any epoch of a stream. It keeps three small copies of the object, for any number of epochs: before
// epoch 0, before the epoch that was computed last (it is often requested twice), and after that epoch.
type live struct {
	first stream
	last  stream // before epoch at-1; nil: none
	ahead stream // before epoch at; nil: none
	at    int

	stopped *atomic.Bool // the replay's; nil: never
}

func (l *live) order(epoch int, dst []uint32) ([]uint32, error) {
	switch {
	case l.ahead != nil && epoch >= l.at:
	case l.last != nil && epoch == l.at-1:
		l.ahead, l.at = l.last, epoch
	default:
		l.ahead, l.at = l.first.clone(), 0
	}
	for ; l.at < epoch; l.at++ {
		if l.stopped != nil && l.stopped.Load() {
			l.ahead, l.last = nil, nil
			return dst, errStopped
		}
		l.ahead.skip()
	}
	l.last = l.ahead.clone()
	l.at++
	dst, err := l.ahead.next(dst)
	if err != nil {
		l.ahead, l.last = nil, nil
	}
	return dst, err
}

// ordererFunc is an order that depends only on the epoch.
type ordererFunc func(epoch int, dst []uint32) ([]uint32, error)

func (f ordererFunc) order(epoch int, dst []uint32) ([]uint32, error) { return f(epoch, dst) }

// always returns the size function of a global order with n entries in each epoch.
func always(n int) func(int) (int, error) {
	return func(int) (int, error) { return n, nil }
}
