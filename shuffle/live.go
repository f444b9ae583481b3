package shuffle

import "sync/atomic"

// stream is a live object of the framework (a sampler, a loader, a generator) that stands before its next
// epoch and carries its state from one to the next.
type stream interface {
	// next appends the epoch's order to dst[:0] and moves on.
	next(dst []uint32) ([]uint32, error)
	// skip moves past the epoch: it draws the same numbers as the epoch and keeps nothing.
	skip()
	// clone copies the object as it stands; the copy goes its own way.
	clone() stream
}

// live gives any epoch of a stream. It keeps three small copies of the object, whatever the number of epochs:
// before epoch 0, before the epoch made last (it is often asked for twice), and after it.
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

// ordererFunc is an order that depends on nothing but the epoch.
type ordererFunc func(epoch int, dst []uint32) ([]uint32, error)

func (f ordererFunc) order(epoch int, dst []uint32) ([]uint32, error) { return f(epoch, dst) }

// always is the size of a global order that is the same in each epoch.
func always(n int) func(int) (int, error) {
	return func(int) (int, error) { return n, nil }
}
