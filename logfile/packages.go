package logfile

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"lcache/sample"
)

// Packages are the unordered segments of a cache: samples that no promised order names lie in them. They are a log whose segments are packages, each of one
// block or more, which come and go one by one. So many of them are open at once: a sample is put into one of those, and a package into which the
// next sample does not fit is finished.
//
// A package's number is its segment's. It is given again when the package was freed, and the number's round tells the records of one package from those of the
// next. Numbers are first in, first out, as places are: after a crash the records of a package that was freed just now are still there.
//
// Packages are read by the methods of Log: by block, by place, and by their arrival lists.
type Packages struct {
	log   *Logfile
	lanes []lane

	rewriting turn  // guards the field that follows. The rewriting of the journal holds it, and settle does
	tryAt     int64 // the journal is rewritten only when it is as long as that: after an attempt that failed

	mu     sync.Mutex // guards the fields that follow; never held while waiting
	states []packageState
	unused []uint32 // numbers that no package has, in the order in which they are given
	partly []uint32 // recovered packages that are filled on before others are begun
}

// lane is one of the packages that are open at once.
type lane struct {
	turn   turn // held by Put; taken before the segment's lock; guards the field that follows
	number int  // of the package; -1: none
}

type packageState uint8

const (
	packageUnused packageState = iota
	packageOpen
	packageFinished
)

// BeginPackages makes room for so many packages of at most h.SegmentBlocks blocks and room samples, of which h.Open are open at once. There must be no packages,
// or empty ones. Zero fields Block and Align of h are filled in. The packages' journal is the first that says so: a cache without them has no such file.
func (s *Store) BeginPackages(h Header, packages, room int) (*Packages, error) {
	if packages < 1 || packages > maxSegments || room < 1 || h.Open < 1 || h.Epoch != 0 {
		return nil, fmt.Errorf("begin %d packages of %d samples, %d open at once: out of range", packages, room, h.Open)
	}
	h.Segments = uint32(packages)
	h.Starts = make([]uint64, packages+1)
	for k := range h.Starts {
		h.Starts[k] = uint64(k) * uint64(room)
	}
	if old := s.Packages(); old != nil {
		if err := old.settle(s); err != nil {
			return nil, fmt.Errorf("begin packages: %w", err)
		}
		defer old.rewriting.give()
	}
	l, err := s.begin(PackageHalf, h)
	if l == nil {
		return nil, err
	}
	return s.Packages(), err
}

// DropPackages frees all places of the packages and forgets them, their journal too. It is Drop in all else.
func (s *Store) DropPackages() error {
	if p := s.Packages(); p != nil {
		if err := p.settle(s); err != nil {
			return fmt.Errorf("drop packages: %w", err)
		}
		defer p.rewriting.give()
	}
	return s.drop(PackageHalf)
}

// settle waits until the journal is not being rewritten, and keeps it so until rewriting is given back: a journal that is replaced must not come back.
func (p *Packages) settle(s *Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.closeTimeout)
	defer cancel()
	if err := p.rewriting.take(ctx); err != nil {
		return &HungError{What: "rewriting " + p.log.journal.path, Err: err}
	}
	return nil
}

// Packages returns the packages, as recovered or begun; nil if there are none.
func (s *Store) Packages() *Packages {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packages
}

// newPackages takes over what a Logfile of packages holds.
func newPackages(l *Logfile) *Packages {
	p := &Packages{log: l, rewriting: newTurn(), lanes: make([]lane, l.head.Open), states: make([]packageState, l.head.Segments)}
	for k := range p.lanes {
		p.lanes[k] = lane{turn: newTurn(), number: -1}
	}
	enough := uint64(l.head.SegmentBlocks) * uint64(l.head.Block) / 4
	for number := range l.segs {
		samples, bytes := l.Room(number)
		switch {
		case l.Gone(number) == l.Blocks(number):
			p.unused = append(p.unused, uint32(number))
			continue
		case samples > 0 && bytes >= enough && !l.IsOlder() && !l.s.readOnly:
			p.partly = append(p.partly, uint32(number))
		}
		p.states[number] = packageFinished
		l.journal.live.Add(l.recordBytes(number))
	}
	return p
}

// Log returns the log whose segments are the packages, for reading. Its methods that append or free are not for packages.
func (p *Packages) Log() *Logfile { return p.log }

// Open returns how many packages are open at once.
func (p *Packages) Open() int { return len(p.lanes) }

// Put appends a sample to the package that is open in a lane, counted from 0, and returns the package's number and the sample's offset there. A package into which
// the sample does not fit is finished, and another one begun. It waits as Append does, and also for other Puts in the lane. ErrFull means that the sample is
// larger than a package, or that no number is left: then packages must be freed first.
func (p *Packages) Put(ctx context.Context, in int, index sample.Index, data []byte) (number int, off uint64, err error) {
	if in < 0 || in >= len(p.lanes) {
		return 0, 0, fmt.Errorf("put sample %d into a package: there are %d lanes", index, len(p.lanes))
	}
	if most := uint64(p.log.head.SegmentBlocks) * uint64(p.log.head.Block); p.log.s.format.pad(len(data)) > most {
		return 0, 0, fmt.Errorf("put sample %d into a package: %w: %d bytes, a package has %d", index, ErrFull, len(data), most)
	}
	lane := &p.lanes[in]
	if err := lane.turn.take(ctx); err != nil {
		return 0, 0, fmt.Errorf("put sample %d into a package: wait for another one: %w", index, err)
	}
	defer lane.turn.give()
	for {
		if lane.number < 0 {
			if lane.number, err = p.begin(ctx); err != nil {
				lane.number = -1
				return 0, 0, fmt.Errorf("put sample %d into a package: %w", index, err)
			}
		}
		off, err = p.log.Append(ctx, lane.number, index, data)
		if !errors.Is(err, ErrFull) {
			return lane.number, off, err
		}
		p.finish(lane.number)
		lane.number = -1
	}
}

// Unplaced returns how many bytes of open packages are in blocks that are not full yet. Such a block takes a place when it is full, or when its package is finished.
func (p *Packages) Unplaced(ctx context.Context) (bytes uint64, err error) {
	for k := range p.lanes {
		lane := &p.lanes[k]
		if err := lane.turn.take(ctx); err != nil {
			return 0, fmt.Errorf("measure open packages: wait for a sample that is put there: %w", err)
		}
		if lane.number >= 0 {
			bytes += p.log.unplaced(lane.number)
		}
		lane.turn.give()
	}
	return bytes, nil
}

// unplaced returns how many bytes are in a segment's last block, if that is not full yet.
func (l *Logfile) unplaced(seg int) uint64 {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	if b := sg.lastLocked(); b != nil && b.state == stateOpen {
		return uint64(b.used)
	}
	return 0
}

// Finish finishes the package that is open in a lane, if there is one. What is put there next begins another package.
func (p *Packages) Finish(ctx context.Context, in int) error {
	lane := &p.lanes[in]
	if err := lane.turn.take(ctx); err != nil {
		return fmt.Errorf("finish a package: wait for a sample that is put there: %w", err)
	}
	defer lane.turn.give()
	if lane.number >= 0 {
		p.finish(lane.number)
		lane.number = -1
	}
	return nil
}

// begin returns a package to be filled: one that was recovered and has room, else a new one.
func (p *Packages) begin(ctx context.Context) (int, error) {
	p.mu.Lock()
	if len(p.partly) > 0 {
		number := p.partly[0]
		p.partly = p.partly[1:]
		p.states[number] = packageOpen
		p.mu.Unlock()
		return int(number), nil
	}
	if len(p.unused) == 0 {
		p.mu.Unlock()
		return 0, fmt.Errorf("%w: there are %d packages", ErrFull, len(p.states))
	}
	number := p.unused[0]
	p.unused = p.unused[1:]
	p.states[number] = packageOpen
	p.mu.Unlock()
	if err := p.log.nextRound(ctx, int(number)); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.states[number] = packageUnused
		p.unused = append(p.unused, number)
		return 0, err
	}
	return int(number), nil
}

// nextRound makes an empty package of one that was freed. Writes of the last round that are still in flight find another one, and give their places back.
func (l *Logfile) nextRound(ctx context.Context, seg int) error {
	sg := &l.segs[seg]
	if err := l.enter(ctx, sg); err != nil {
		return err
	}
	defer sg.leave()
	sg.mu.Lock()
	defer sg.mu.Unlock()
	sg.round++
	sg.blocks, sg.n, sg.freed, sg.back = nil, 0, 0, nil
	return nil
}

// finish writes the last block of an open package, if it is not full, as a block of its own.
func (p *Packages) finish(number int) {
	l := p.log
	sg := &l.segs[number]
	sg.lock <- struct{}{} // nobody else appends to the package
	sg.mu.Lock()
	var f *blockWrite
	if b := sg.lastLocked(); b != nil && b.state == stateOpen {
		clear(l.pool.bytes(b.place)[b.used:]) // a used buffer must not leak what it held
		f = l.prepareWriteLocked(number)
	}
	sg.mu.Unlock()
	sg.leave()
	p.mu.Lock()
	p.states[number] = packageFinished
	p.mu.Unlock()
	if f != nil {
		l.send(f)
	}
}

// Free frees a finished package, whose samples' new places the caller has published. Its number is given again, after all others that are free.
func (p *Packages) Free(number int) error {
	if number < 0 || number >= len(p.states) {
		return fmt.Errorf("free package %d: there are %d", number, len(p.states))
	}
	p.mu.Lock()
	if p.states[number] == packageOpen {
		p.mu.Unlock()
		return fmt.Errorf("free package %d: it is open", number)
	}
	freed := p.states[number] == packageUnused
	p.states[number] = packageOpen // nobody else frees or fills it meanwhile
	for k, n := range p.partly {
		if int(n) == number {
			p.partly = append(p.partly[:k:k], p.partly[k+1:]...)
			break
		}
	}
	p.mu.Unlock()
	if !freed {
		p.log.FreeSegment(number)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states[number] = packageUnused
	if !freed {
		p.unused = append(p.unused, uint32(number))
	}
	return nil
}

// FreeBlocks frees blocks [0, upto) of a finished package, whose samples' new places the caller has published. Free has to follow: the number is not given again before.
func (p *Packages) FreeBlocks(number, upto int) error {
	p.mu.Lock()
	finished := number >= 0 && number < len(p.states) && p.states[number] == packageFinished
	p.mu.Unlock()
	if !finished {
		return fmt.Errorf("free blocks of package %d: it is not finished", number)
	}
	return p.log.FreeBlocks(number, upto)
}

// IsRecorded reports whether the journal takes records. If it does not, what is put into packages is lost at the next restart.
func (p *Packages) IsRecorded() bool { return !p.log.journal.closed.Load() }

// FirstFinished returns the first finished package for which skip returns false. Recovered packages are among them until they are filled on.
func (p *Packages) FirstFinished(skip func(number int) bool) (number int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number, s := range p.states {
		if s == packageFinished && !skip(number) {
			return number, true
		}
	}
	return 0, false
}

// Finished lists the finished packages by number. Recovered ones are among them until they are filled on.
func (p *Packages) Finished() (numbers []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number, s := range p.states {
		if s == packageFinished {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// Unused is how many numbers no package has.
func (p *Packages) Unused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unused)
}

// recordBytes is how long the records of a package's blocks on disk are.
func (l *Logfile) recordBytes(seg int) (n int64) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	for seq := range sg.blocks {
		if b := &sg.blocks[seq]; b.state == stateDisk {
			n += int64(recordSize(int(l.endLocked(sg, seq) - b.ord)))
		}
	}
	return n
}
