package peer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"lcache/sample"
)

// A Consumer is a member that requests samples of a dataset from this machine.
type Consumer struct {
	Member string    // its name
	Bytes  uint64    // of samples that were sent to it
	Sent   uint64    // PARCELs with them
	Asked  time.Time // when its last LIST came
	IsOpen bool      // it has a stream: one that needs nothing now has none
}

// mostConsumers bounds the consumers that a dataset remembers. A member has a new name with each start; the longest silent are forgotten first.
const mostConsumers = 256

// mostName bounds a member's name, in bytes.
const mostName = 64

// consumers counts what is sent, by member.
type consumers struct {
	mu   sync.Mutex // guards the field that follows
	each map[string]*consumer
}

type consumer struct {
	bytes atomic.Uint64
	sent  atomic.Uint64 // PARCELs with bytes
	asked atomic.Int64  // in ns since 1970
	open  atomic.Int64  // streams
}

// of returns the counts of the member that a stream comes from.
func (c *consumers) of(ctx context.Context) *consumer {
	name := ""
	if m, ok := metadata.FromIncomingContext(ctx); ok {
		if v := m.Get(metaPeer); len(v) == 1 {
			name = v[0][:min(len(v[0]), mostName)]
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.each[name]; known != nil {
		return known
	}
	if c.each == nil {
		c.each = map[string]*consumer{}
	}
	if len(c.each) >= mostConsumers {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(c.each)), func(a, b string) int { return cmp.Compare(c.each[a].asked.Load(), c.each[b].asked.Load()) })
		delete(c.each, oldest)
	}
	made := &consumer{}
	c.each[name] = made
	return made
}

// Consumers returns the members that have requested samples of a dataset since it was added.
func (s *Server) Consumers(f sample.Fingerprint) (list []Consumer) {
	s.mu.Lock()
	of := s.homes[f]
	s.mu.Unlock()
	if of == nil {
		return nil
	}
	of.consumers.mu.Lock()
	defer of.consumers.mu.Unlock()
	for name, c := range of.consumers.each {
		one := Consumer{Member: name, Bytes: c.bytes.Load(), Sent: c.sent.Load(), IsOpen: c.open.Load() > 0}
		if at := c.asked.Load(); at != 0 {
			one.Asked = time.Unix(0, at)
		}
		list = append(list, one)
	}
	return list
}
