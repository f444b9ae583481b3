package engine

import (
	"maps"
	"time"
)

// A session's orders are announced first; its file follows, on a goroutine of its own. An epoch's first request waits until the file has the order, so that a server that is killed goes on with it. It does not
// wait longer than fileShare: a disk that hangs costs the order after a restart, not the training.

// fileShare is the part of a request's time that the file may take.
const fileShare = 3

// unsavedOrder is an order that is announced and not in the file yet.
type unsavedOrder struct {
	version int64     // of the file that has it
	since   time.Time // when it was announced
}

// save has the state written. The worker calls it after each boundary; before the worker runs, newImportant does. No lock is held: only the caller changes the state.
func (p *important) save() {
	p.mu.Lock()
	version := p.version
	p.mu.Unlock()
	if err := p.file.Save(p.state, version); err != nil {
		p.e.cache.Logger.Warn("there is no memory to save the importance of a job: a server that is started again draws other orders", "name", p.config.Name, "err", err)
		p.saved(version)
	}
}

// saved notes that the file has a version of the state, or never will.
func (p *important) saved(version int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.savedVersion, p.fileLate = version, false
	maps.DeleteFunc(p.unsaved, func(_ int, o unsavedOrder) bool { return o.version <= version })
	p.tellWaiters()
}

// announced notes that the schedule has an epoch's order. p.mu is held.
func (p *important) announced(epoch int) {
	p.given[epoch] = true
	delete(p.unsaved, epoch)
	if p.savedVersion < p.version && !p.fileLate {
		p.unsaved[epoch] = unsavedOrder{p.version, time.Now()}
	}
}

// fileTime returns how long a request waits for the file to have an epoch's order, and whether the file is given up now. p.mu is held.
func (p *important) fileTime(epoch int) (left time.Duration, late bool) {
	o, waits := p.unsaved[epoch]
	if !waits {
		return 0, false
	}
	if left = time.Until(o.since.Add(p.e.deliver.Timeout() / fileShare)); left > 0 {
		return left, false
	}
	p.fileLate = true
	clear(p.unsaved)
	return 0, true
}

// warnOfFile says that an epoch begins before the file has its order.
func (p *important) warnOfFile(epoch int) {
	p.e.cache.Logger.Warn("the importance of a job is not saved in time, and an epoch begins without: a server that is started again now draws other orders; look at the disk (dmesg)",
		"name", p.config.Name, "epoch", epoch, "waited", p.e.deliver.Timeout()/fileShare)
}

// tellWaiters wakes the requests that wait for an order. p.mu is held.
func (p *important) tellWaiters() {
	close(p.changed)
	p.changed = make(chan struct{})
}
