package fetchtest

import (
	"context"
	"sync"

	"lcache/sample"
	"lcache/source"
)

// Source is a directory source that counts its reads, and can be made slow or made to fail.
type Source struct {
	source.Source

	mu     sync.Mutex // guards the fields that follow
	before func(ctx context.Context, e sample.Entry, dst []byte) error
	reads  map[string]int
	order  []string
}

// Before sets a function that is called before each read, concurrently. If it returns an error, the read ends with
// it. A nil f removes it.
func (s *Source) Before(f func(ctx context.Context, e sample.Entry, dst []byte) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Reads returns how often each sample was read, by name.
func (s *Source) Reads() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads := map[string]int{}
	for name, n := range s.reads {
		reads[name] = n
	}
	return reads
}

// Order returns the names of the samples in the order in which their reads began.
func (s *Source) Order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.order...)
}

// EndsSilence returns that of the directory source.
func (s *Source) EndsSilence() bool { return source.EndsSilence(s.Source) }

// Read counts the read, calls the function of Before, and reads.
func (s *Source) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	s.mu.Lock()
	s.reads[e.Name]++
	s.order = append(s.order, e.Name)
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, e, dst); err != nil {
			return err
		}
	}
	return s.Source.Read(ctx, e, dst)
}
