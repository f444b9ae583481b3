package fetchtest

import (
	"context"
	"sync"

	"lcache/sample"
	"lcache/source"
)

// Source is a directory that counts its reads, and may be told to be slow or to fail.
type Source struct {
	source.Source

	mu     sync.Mutex // guards the fields that follow
	before func(ctx context.Context, e sample.Entry, dst []byte) error
	reads  map[string]int
	order  []string
}

// Before is called ahead of each read, concurrently; an error of it ends the read. A nil f ends that.
func (s *Source) Before(f func(ctx context.Context, e sample.Entry, dst []byte) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Reads is how often each sample was read, by name.
func (s *Source) Reads() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads := map[string]int{}
	for name, n := range s.reads {
		reads[name] = n
	}
	return reads
}

// Order is the names of the samples that were read, as their reads began.
func (s *Source) Order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.order...)
}

// EndsSilence is that of the source.
func (s *Source) EndsSilence() bool { return source.EndsSilence(s.Source) }

// Read counts, does what Before says, and reads.
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
