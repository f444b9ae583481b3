package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/sample"
)

// appends are the samples that requests append to the log, each by one caller at a time.
type appends struct {
	mu      sync.Mutex // guards the fields that follow
	busy    map[sample.Index]struct{}
	pause   time.Time // no attempt before this time
	slow    time.Time // no attempt that may wait before this time
	stopped bool
	running sync.WaitGroup // added to only under mu, and not after stopped
}

// enter reports whether a sample may be appended now, by a caller that may wait for the disk or not. Only one caller at a time tries to append a sample.
func (a *appends) enter(index sample.Index, now time.Time, mayWait bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, busy := a.busy[index]; busy || a.stopped || now.Before(a.pause) || mayWait && now.Before(a.slow) {
		return false
	}
	if a.busy == nil {
		a.busy = map[sample.Index]struct{}{}
	}
	a.busy[index] = struct{}{}
	a.running.Add(1)
	return true
}

// leave ends enter. After an error of the disk nothing is appended for a while. A disk that is slow or full is no such error.
func (a *appends) leave(now time.Time, index sample.Index, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.busy, index)
	a.running.Done()
	switch {
	case err == nil, errors.Is(err, logfile.ErrFull):
	case errors.Is(err, context.DeadlineExceeded):
		a.slow = now.Add(slowPause)
	default:
		a.pause = now.Add(layOutAgain)
	}
}

// slowPause is how long no append waits after a disk has not taken a sample in time: reads do not wait for it one after the other.
const slowPause = time.Second

// stop returns when no append is running. None begins after it.
func (a *appends) stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.running.Wait()
}

// arrivals keeps the samples that a cluster gives to this machine. They are stored in packages, in the order in which they arrive, because the machines
// decide what each of them keeps, and that may change.
type arrivals struct {
	appends
	cache    *cache.Cache
	keeps    func(sample.Index) bool
	packages *logfile.Packages // nil: nothing can be stored

	claiming sync.Mutex // guards the field that follows
	claimed  int64      // bytes of samples that are being stored

	patience patience // of samples of peers

	fills   atomic.Bool  // nothing else happens but filling the cache: the source waits for the disk
	skipped atomic.Int64 // samples of peers that were not stored, because the disk was not ready for them
}

// Times that samples of peers may wait for the disk. A burst of samples needs more write buffers than there are, for some milliseconds.
const (
	mostPatience = 200 * time.Millisecond // all together, after a while without a wait
	onePatience  = 20 * time.Millisecond  // each
	growing      = 10                     // one part in growing of the time: delivery is slower by that at most, however slow the disk is
)

// patience is the time for which samples of peers may still wait. It grows with the time that passes.
type patience struct {
	mu   sync.Mutex // guards the fields that follow
	left time.Duration
	at   time.Time // when left was right
}

// take returns how long one sample may wait; 0: not at all. That time counts as used.
func (p *patience) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.at = min(mostPatience, p.left+now.Sub(p.at)/growing), now
	if p.left < onePatience {
		return 0
	}
	p.left -= onePatience
	return onePatience
}

// giveBack ends a wait that took less than take has allowed.
func (p *patience) giveBack(unused time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += max(0, unused)
}

// fillTimeout is how long a sample may wait for the disk while the cache is filled.
const fillTimeout = 30 * time.Second

// claim reserves room for a sample. release gives it back when the sample is stored.
func (a *arrivals) claim(bytes int64) bool {
	a.claiming.Lock()
	defer a.claiming.Unlock()
	if !a.cache.Store.HasRoom(a.reserve() + a.claimed + bytes) {
		return false
	}
	a.claimed += bytes
	return true
}

// reserve returns the bytes for the last blocks of the open packages.
func (a *arrivals) reserve() int64 { return int64(a.packages.Open()+2) * int64(a.cache.Format.Block) }

// left returns how many bytes of further samples have room.
func (a *arrivals) left() int64 {
	a.claiming.Lock()
	defer a.claiming.Unlock()
	return a.cache.Store.Left() - a.reserve() - a.claimed
}

func (a *arrivals) release(bytes int64) {
	a.claiming.Lock()
	defer a.claiming.Unlock()
	a.claimed -= bytes
}

// keepArrivals begins to keep the samples that the cluster gives to this machine.
func (e *Engine) keepArrivals() error {
	if e.peers == nil {
		return nil
	}
	a := &arrivals{cache: e.cache, keeps: e.peers.Keeps, packages: e.cache.Arrivals()}
	if a.packages == nil {
		e.cache.Logger.Warn("this cache has packages that can't be filled, so it keeps no further samples for the cluster; run lcache rm on it, and ingest again")
	} else if err := e.mover.Register(a.packages.Log()); err != nil {
		return err
	}
	e.arrivals.Store(a)
	return nil
}

// store keeps a sample, unless it has it or there is no room. A sample from the source waits for the disk, at most for timeout. One from a peer
// hardly waits, because the peer sends the next ones meanwhile: see patience.
func (a *arrivals) store(ctx context.Context, from sample.Origin, index sample.Index, data []byte, now func() time.Time, timeout time.Duration) {
	locations := a.cache.Locations
	if a.packages == nil || len(data) == 0 || !a.keeps(index) || locations.Get(index) != 0 || !a.enter(index, now(), from != sample.FromPeer) {
		return
	}
	var err error
	defer func() { a.leave(now(), index, err) }()
	if locations.Get(index) != 0 || !a.claim(int64(len(data))) {
		return
	}
	defer a.release(int64(len(data)))
	number, off, err := a.pack(ctx, from, index, data, now, timeout)
	switch {
	case err == nil:
		locations.Move(index, 0, locations.At(logfile.PackagesNum, number, off))
	case errors.Is(err, logfile.ErrWaits):
		a.skipped.Add(1)
		err = nil // the disk works
	case !errors.Is(err, logfile.ErrFull) && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		a.cache.Logger.Warn("cannot keep a sample for the cluster; it will be read from the source again", "sample", index, "error", err)
	}
}

// pack appends a sample to a package.
func (a *arrivals) pack(ctx context.Context, from sample.Origin, index sample.Index, data []byte, now func() time.Time, timeout time.Duration) (number int, off uint64, err error) {
	lane := int(index) % a.packages.Open()
	switch {
	case from == sample.FromPeer:
		number, off, err = a.cache.TryPack(a.packages, lane, index, data)
		if !errors.Is(err, logfile.ErrWaits) {
			return number, off, err
		}
		began := now()
		if timeout = a.patience.take(began); timeout == 0 {
			return 0, 0, err
		}
		defer func() {
			a.patience.giveBack(timeout - now().Sub(began))
			if errors.Is(err, context.DeadlineExceeded) {
				err = logfile.ErrWaits
			}
		}()
	case a.fills.Load():
		timeout = fillTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return a.cache.Pack(limited, a.packages, lane, index, data)
}
