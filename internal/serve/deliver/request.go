package deliver

import (
	"context"

	"lcache/internal/serve/staging"
	"lcache/sample"
)

// A Request is one request for samples. The client sets the first fields; Window.Begin fills in the others.
type Request struct {
	Pid     int
	Session string
	At      *Position // the client's position; nil: none given. A negative rank names only the job
	// Indices are the named samples. If ByPosition is set, the client gives only At, and Begin sets Indices. After
	// Begin, Indices are the samples to serve.
	Indices    []sample.Index
	ByPosition bool
	Takes      bool // the client takes substitutes for the samples that it names
	Again      bool // a further part of a request that has begun: the rank's progress stays as it is

	// Set by Begin.
	Requested []sample.Index // the requested samples, if Indices has others to serve in their place; nil: the same
	Placed    bool           // At is a position of the job's schedule. Otherwise the request is served without a position
}

// place returns the position to serve the request at, or nil.
func (q *Request) place() *Position {
	if q.Placed {
		return q.At
	}
	return nil
}

// job returns the number of the named job. Without a position that is the job with the server's own recipe.
func (q *Request) job() int {
	if q.At == nil {
		return 0
	}
	return q.At.Job
}

// part returns the request for n of the samples, from position from on.
func (q *Request) part(from, n int) *Request {
	p := *q
	p.Indices = q.Indices[from : from+n]
	if q.Requested != nil {
		p.Requested = q.Requested[from : from+n]
	}
	return &p
}

// A Window loads samples ahead of requests and knows the epochs. The engine implements it.
type Window interface {
	// Begin resolves a request and notes the rank's progress, before any sample is looked up. It returns io.EOF after the end of a rank's epoch.
	Begin(ctx context.Context, q *Request) (Plan, error)
}

// A Plan is the window's side of one request. A request calls one method at a time.
type Plan interface {
	// Expect sets expect[i] for the samples with have[i] false. A request with a position waits for the expected samples
	// and reads the others by index. No producer will begin to read those others.
	Expect(indices []sample.Index, have []bool, expect []Availability)
	// LostPatience is called when a scheduled request's patience for a slot, or for read-ahead memory, ran out. If
	// possible, it makes room for the samples with have[i] false.
	LostPatience(indices []sample.Index, have []bool)
	// Done is called after each delivery. Only requests whose samples are lent have several deliveries.
	Done(d Delivery)
}

// Availability is the window's expectation about a sample that is not in staging.
type Availability uint8

const (
	Gone    Availability = iota // not expected: read it by index
	Loading                     // being read
	Queued                      // its segment is next, but no slot is free
)

// A Delivery counts the samples of one answer, by origin in From. Ahead counts samples that were loaded before the
// request or while it waited; Prefetched counts the ones already in memory at the request. Skipped counts
// requested samples that could not be read.
type Delivery struct {
	Samples, Ahead, Skipped int
	Prefetched              int
	From                    [sample.Origins]int

	Indices   []sample.Index    // of the samples
	Requested []sample.Index    // as in Batch
	Addresses []staging.Address // of the samples; nil if the memory may have been reused by now

	Part  bool // more of the same chunk follows
	Ready bool // all samples were in memory when they were requested, and the client got them in one answer by a lease
}

// Misses returns the number of samples from the source. All others are hits.
func (d *Delivery) Misses() int { return d.From[sample.FromSource] }
