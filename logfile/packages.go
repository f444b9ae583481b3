package logfile

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"lcache/sample"
)

// Packages are the unordered segments of a cache: they hold samples that no known order needs. They are a log whose segments are
// packages, each of one block or more, which are filled and freed one by one. Several packages are open at once. A sample goes to one
// of them, and a package without room for the next sample is finished.
//
// A package has the number of its segment. The number is reused after the package was freed, and its round distinguishes the records of
// the old package from the new one's. Numbers are first in, first out, as arena blocks are: after a crash the records of a
// recently freed package are still there.
//
// Packages are read with the methods of Log: by block, with random reads, and by their arrival lists.
type Packages struct {
	log  *Logfile
	open []openPackage

	rewriting turn  // guards the field that follows; held by the rewriting of the journal, and by settle
	tryAt     int64 // the journal is rewritten when it has this length; set after a failed attempt

	mu     sync.Mutex // guards the fields that follow; never held while waiting
	states []packageState
	unused []uint32 // numbers without a package, in the order of reuse
	partly []uint32 // recovered packages, which are filled before new ones
}

// openPackage is one of the packages that are open at once.
type openPackage struct {
	turn   turn // held by Put; taken before the segment's lock; guards the field that follows
	number int  // of the package; -1: none
}

type packageState uint8

const (
	packageUnused packageState = iota
	packageOpen
	packageFinished
)

// BeginPackages makes room for a number of packages. Each has at most h.SegmentBlocks blocks and room samples; h.Open packages are open at
// once. There must be no packages, or only empty ones. It fills in Block and Align of h if they are 0. It makes the journal of packages, which other caches do not have.
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
		defer old.rewriting.release()
	}
	l, err := s.begin(PackagesNum, h)
	if l == nil {
		return nil, err
	}
	return s.Packages(), err
}

// DropPackages frees all arena blocks of the packages, and deletes their journal. In everything else it is like Drop.
func (s *Store) DropPackages() error {
	if p := s.Packages(); p != nil {
		if err := p.settle(s); err != nil {
			return fmt.Errorf("drop packages: %w", err)
		}
		defer p.rewriting.release()
	}
	return s.drop(PackagesNum)
}

// settle waits until the journal is not being rewritten, and prevents rewriting until the caller returns rewriting: a replaced journal must not come back.
func (p *Packages) settle(s *Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.closeTimeout)
	defer cancel()
	if err := p.rewriting.take(ctx); err != nil {
		return &HungError{What: "rewriting " + p.log.journal.path, Err: err}
	}
	return nil
}

// Packages returns the recovered or begun packages; nil if there are none.
func (s *Store) Packages() *Packages {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packages
}

// newPackages makes Packages of a Logfile of packages.
func newPackages(l *Logfile) *Packages {
	p := &Packages{log: l, rewriting: newTurn(), open: make([]openPackage, l.head.Open), states: make([]packageState, l.head.Segments)}
	for k := range p.open {
		p.open[k] = openPackage{turn: newTurn(), number: -1}
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

// Log returns the log of the packages, for reading. Do not call its methods that append or free.
func (p *Packages) Log() *Logfile { return p.log }

// Open returns the number of packages that are open at once.
func (p *Packages) Open() int { return len(p.open) }

// Put appends a sample to open package number in, from 0. It returns the package's number and the sample's offset in it. If the sample
// does not fit, Put finishes the package and begins another one. It waits as Append does, and for other Puts to the same open
// package. ErrFull means that the sample is larger than a package, or that no number is left and packages must be freed first.
func (p *Packages) Put(ctx context.Context, in int, index sample.Index, data []byte) (number int, off uint64, err error) {
	if in < 0 || in >= len(p.open) {
		return 0, 0, fmt.Errorf("put sample %d into a package: %d packages are open at once", index, len(p.open))
	}
	if most := uint64(p.log.head.SegmentBlocks) * uint64(p.log.head.Block); p.log.s.format.pad(len(data)) > most {
		return 0, 0, fmt.Errorf("put sample %d into a package: %w: %d bytes, a package has %d", index, ErrFull, len(data), most)
	}
	o := &p.open[in]
	if err := o.turn.take(ctx); err != nil {
		return 0, 0, fmt.Errorf("put sample %d into a package: wait for another one: %w", index, err)
	}
	defer o.turn.release()
	for {
		if o.number < 0 {
			if o.number, err = p.begin(ctx); err != nil {
				o.number = -1
				return 0, 0, fmt.Errorf("put sample %d into a package: %w", index, err)
			}
		}
		off, err = p.log.Append(ctx, o.number, index, data)
		if !errors.Is(err, ErrFull) {
			return o.number, off, err
		}
		p.finish(o.number)
		o.number = -1
	}
}

// ErrWaits means that TryPut would have to wait.
var ErrWaits = errors.New("there is no write buffer for it now")

// NoWait is a context that has ended, with ErrWaits. What would wait until it ends does not wait.
func NoWait() context.Context { return ended }

var ended = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrWaits)
	return ctx
}()

// TryPut is Put without waiting: for a write buffer, for a read of a recovered package's last block, or for other Puts. It tries the open packages from
// number in on. ErrWaits means that none can take the sample now.
func (p *Packages) TryPut(in int, index sample.Index, data []byte) (number int, off uint64, err error) {
	if need := int(p.log.s.format.pad(len(data))/uint64(p.log.head.Block)) + 1; len(p.log.pool.free) < need { // else a part of the sample might be appended
		return 0, 0, fmt.Errorf("put sample %d into a package: %w", index, ErrWaits)
	}
	for k := range p.open {
		if number, off, err = p.Put(ended, (in+k)%len(p.open), index, data); !errors.Is(err, ErrWaits) {
			break
		}
	}
	return number, off, err
}

// Unplaced returns the bytes of open packages in blocks that are not full yet. Such a block gets an arena block when it is full, or when its package is finished.
func (p *Packages) Unplaced(ctx context.Context) (bytes uint64, err error) {
	for k := range p.open {
		o := &p.open[k]
		if err := o.turn.take(ctx); err != nil {
			return 0, fmt.Errorf("measure open packages: wait for a sample that is put there: %w", err)
		}
		if o.number >= 0 {
			bytes += p.log.unplaced(o.number)
		}
		o.turn.release()
	}
	return bytes, nil
}

// unplaced returns the bytes in a segment's last block, if that is not full yet.
func (l *Logfile) unplaced(seg int) uint64 {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	if b := sg.lastLocked(); b != nil && b.state == stateOpen {
		return uint64(b.used)
	}
	return 0
}

// Finish finishes open package number in, if there is one. The next Put there begins another package.
func (p *Packages) Finish(ctx context.Context, in int) error {
	o := &p.open[in]
	if err := o.turn.take(ctx); err != nil {
		return fmt.Errorf("finish a package: wait for a sample that is put there: %w", err)
	}
	defer o.turn.release()
	if o.number >= 0 {
		p.finish(o.number)
		o.number = -1
	}
	return nil
}

// begin returns a package to fill: a recovered one with room, or a new one.
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

// nextRound empties a freed package for reuse. Writes of the last round that are still in flight see the new round, and release their arena blocks.
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

// finish writes the last block of an open package as a block of its own, if it is not full.
func (p *Packages) finish(number int) {
	l := p.log
	sg := &l.segs[number]
	sg.lock <- struct{}{} // only Put appends to the package
	sg.mu.Lock()
	var f *blockWrite
	if b := sg.lastLocked(); b != nil && b.state == stateOpen {
		clear(l.pool.bytes(b.place)[b.used:]) // the old content of a buffer must not reach the disk
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

// Free frees a finished package. The caller has published the new locations of its samples. Its number is reused after all other free numbers.
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
	p.states[number] = packageOpen // so that nothing else frees or fills it meanwhile
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

// FreeBlocks frees blocks [0, upto) of a finished package. The caller has published the new locations of its samples. The number is not reused before Free, which must follow.
func (p *Packages) FreeBlocks(number, upto int) error {
	p.mu.Lock()
	finished := number >= 0 && number < len(p.states) && p.states[number] == packageFinished
	p.mu.Unlock()
	if !finished {
		return fmt.Errorf("free blocks of package %d: it is not finished", number)
	}
	return p.log.FreeBlocks(number, upto)
}

// IsRecorded reports whether the journal takes records. If it does not, samples in new packages are lost at the next restart.
func (p *Packages) IsRecorded() bool { return !p.log.journal.closed.Load() }

// FirstFinished returns the first finished package for which skip returns false. It includes recovered packages until they are filled further.
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

// Finished lists the finished packages by number. It includes recovered packages until they are filled further.
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

// Unused returns the number of package numbers without a package.
func (p *Packages) Unused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unused)
}

// recordBytes returns the length of the records of a package's blocks on disk.
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
