package logfile

import (
	"errors"
	"fmt"
	"os"

	"lcache/internal/disk/durable"

	"golang.org/x/sys/unix"
)

// rewriteSlack is the most bytes that the journal of packages may have beyond 1.5 times the records of live blocks. A small arena has less, so that the journal is negligible in its budget.
const rewriteSlack = 64 << 10

// rewriteSlack returns the slack for this format: see the constant.
func (f Format) rewriteSlack() int64 {
	return min(rewriteSlack, max(16<<10, int64(f.Places)*int64(f.Block)/4096))
}

// rewriteJournal replaces the journal of packages by one with only the records of live blocks, if it has grown enough. The goroutine that
// writes records calls it, so records wait in memory meanwhile. After an error the old journal is used, and the next attempt comes when
// it has grown further. A journal that would take more of the budget than is counted for it gets no further records: after a restart their samples are misses.
func (p *Packages) rewriteJournal() {
	select {
	case p.rewriting <- struct{}{}:
		defer p.rewriting.release()
	default: // the packages are being dropped
		return
	}
	j := p.log.journal
	j.wmu.Lock()
	defer j.wmu.Unlock()
	live, length, slack := j.live.Load(), j.off-int64(headerSize(len(p.log.segs))), p.log.s.format.rewriteSlack()
	if j.f == nil || length <= live*3/2+slack || j.off < p.tryAt {
		return
	}
	s := p.log.s
	if err := p.rewriteLocked(); err != nil && !errors.Is(err, errEnding) {
		s.stats.journalErrors.Add(1)
		s.log.Warn("journal of packages not rewritten", "err", err)
		p.tryAt = j.off + slack/4
		if length > live*5/2+2*slack {
			s.log.Error("journal of packages is full: samples packed from now on are lost at the next restart")
			_ = j.closeLocked()
		}
		return
	}
	s.stats.rewrites.Add(1)
}

// errEnding is the reason for not rewriting a journal while its Store is being closed: blocks then count as freed.
var errEnding = errors.New("the cache is being closed")

func (p *Packages) rewriteLocked() error {
	l := p.log
	j := l.journal
	v, err := j.trace.Begin(j.path)
	if err != nil {
		return fmt.Errorf("rewrite %s: %w", j.path, err)
	}
	size, err := p.copyRecords(v)
	if err == nil && l.isEnding() {
		err = errEnding
	}
	if err != nil {
		return errors.Join(fmt.Errorf("rewrite %s: %w", j.path, err), v.Discard())
	}
	if err = v.Commit(); err != nil {
		err = fmt.Errorf("rewrite %s: %w", j.path, err)
		if !isThere(v.File, j.path) {
			return errors.Join(err, v.Discard())
		}
		j.fail(err) // the new journal is in place, but may not survive a crash of the machine
	}
	old := j.f
	j.f, j.off, j.unsynced = v.File, size, false
	j.live.Store(size - int64(headerSize(len(l.segs))))
	return errors.Join(err, old.Close())
}

// isThere reports whether a path leads to an open file.
func isThere(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// copyRecords writes the header and the records of live blocks to v, and returns their length.
func (p *Packages) copyRecords(v *durable.Version) (size int64, err error) {
	l := p.log
	j := l.journal
	head := encodeHeader(&l.head, l.gen, j.seed)
	_ = durable.Fallocate(v.File, unix.FALLOC_FL_KEEP_SIZE, int64(len(head))+j.live.Load()*3/2+l.s.format.rewriteSlack())
	out := make([]byte, 0, 1<<20)
	out = append(out, head...)
	flush := func() error {
		n, err := v.Write(out)
		size += int64(n)
		out = out[:0]
		return err
	}
	sc := newScanner(j.f, int64(len(head)), l.s.format.recordLimit(), j.seed)
	for sc.next() {
		if !l.needs(&sc.rec) {
			continue
		}
		if out = append(out, sc.raw...); len(out) > 1<<20-l.s.format.recordLimit() {
			if err := flush(); err != nil {
				return size, err
			}
		}
	}
	if sc.err != nil {
		return size, sc.err
	}
	err = flush()
	return size, err
}

// needs reports whether a record belongs to a live block. A block in memory may have a copy on disk from when it was shorter.
func (l *Logfile) needs(r *record) bool {
	if int(r.segment) >= len(l.segs) || r.isFreed() {
		return false
	}
	sg := &l.segs[r.segment]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	if r.epoch != sg.round || int(r.sequence) >= len(sg.blocks) {
		return false
	}
	b := &sg.blocks[r.sequence]
	return b.state.inMemory() || b.state == stateDisk && b.place == r.place && uint32(b.at)*unit == r.at && b.used == r.used
}
