package state

import (
	"log/slog"
	"sync"

	"lcache/internal/disk/durable"
	"lcache/internal/disk/offheap"
)

// A Saver writes versions of one job's file; the newest version wins. A disk may take any time to make a file
// durable. So Save copies the bytes, and a goroutine writes them without using the State.
type Saver struct {
	Room func(bytes int64) error // returns an error if a version has no room; nil: no limit. Set before the first Save

	path  string
	trace durable.Trace
	log   *slog.Logger
	saved func(number int64)

	running sync.WaitGroup
	mu      sync.Mutex // guards the fields that follow
	next    *encoded   // the version to write next; nil: none
	writing bool
}

// encoded is the file's content at one time.
type encoded struct {
	number int64
	name   string // of the job, for warnings
	bytes  pages
}

// NewSaver returns a Saver for the file at path. It calls saved after each version, written or failed. It logs a
// failure as a warning.
func NewSaver(path string, trace durable.Trace, log *slog.Logger, saved func(number int64)) *Saver {
	return &Saver{path: path, trace: trace, log: log, saved: saved}
}

// Save copies the State and queues it for writing, in place of a version that is still queued. number grows from call to call.
func (v *Saver) Save(s *State, number int64) error {
	next := &encoded{number: number, name: s.Config.Name}
	if err := s.encode(&next.bytes); err != nil {
		next.bytes.free()
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next != nil {
		v.next.bytes.free()
	}
	v.next = next
	if !v.writing {
		v.writing = true
		v.running.Go(v.write)
	}
	return nil
}

// Wait waits until all queued versions are written.
func (v *Saver) Wait() { v.running.Wait() }

// write writes versions until none is queued.
func (v *Saver) write() {
	for next := v.take(); next != nil; next = v.take() {
		if err := v.replace(&next.bytes); err != nil { // the training continues; only a restart would draw other orders
			v.log.Warn("cannot save the importance of a job: after a restart the server would draw other orders", "name", next.name, "err", err)
		}
		next.bytes.free()
		v.saved(next.number)
	}
}

func (v *Saver) replace(bytes *pages) error {
	if v.Room != nil {
		if err := v.Room(bytes.len()); err != nil {
			return err
		}
	}
	return v.trace.Replace(v.path, bytes.writeTo)
}

// take returns the version to write; nil: none.
func (v *Saver) take() *encoded {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.next
	v.next = nil
	v.writing = next != nil
	return next
}

// pageBytes is the size of pages that are allocated at once.
const pageBytes = 1 << 20

// pages collects bytes outside Go's heap.
type pages struct {
	pages [][]byte
	end   int // of the last page, in bytes
}

func (p *pages) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if len(p.pages) == 0 || p.end == pageBytes {
			page, err := offheap.MakeDense[byte](pageBytes)
			if err != nil {
				return n, err
			}
			p.pages, p.end = append(p.pages, page), 0
		}
		copied := copy(p.pages[len(p.pages)-1][p.end:], b[n:])
		p.end += copied
		n += copied
	}
	return n, nil
}

func (p *pages) len() int64 { return int64(len(p.pages)-1)*pageBytes + int64(p.end) }

// writeTo writes all collected bytes.
func (p *pages) writeTo(v *durable.Version) error {
	for k, page := range p.pages {
		if k == len(p.pages)-1 {
			page = page[:p.end]
		}
		if _, err := v.Write(page); err != nil {
			return err
		}
	}
	return nil
}

func (p *pages) free() {
	for _, page := range p.pages {
		offheap.Free(page)
	}
	p.pages = nil
}
