package deliver

import (
	"context"

	"lcache/internal/serve/staging"
	"lcache/sample"
)

// A Request is one request for samples. The client's half says what it names; Window.Begin fills in the rest.
type Request struct {
	Pid     int
	Session string
	At      *Position // where the client says that it is; nil: it does not say. A negative rank names the job alone
	// Indices are the named samples. ByPosition: the client names At alone, and Begin sets them. Afterwards they are the samples that are served.
	Indices    []sample.Index
	ByPosition bool
	Takes      bool // the client takes substitutes for samples that it names
	Again      bool // a loan follows a request that was begun: the rank's progress stays as it is

	// Set by Begin.
	Requested []sample.Index // the samples that Indices are served for; nil: the same
	Placed    bool           // At is a position of the job's schedule. Else the request is served as one without a position
}

// place returns the position that counts; nil: none.
func (q *Request) place() *Position {
	if q.Placed {
		return q.At
	}
	return nil
}

// job returns the number of the job that is named; without a position that is the server's own recipe's.
func (q *Request) job() int {
	if q.At == nil {
		return 0
	}
	return q.At.Job
}

// part returns the request for n of the samples from one on.
func (q *Request) part(from, n int) *Request {
	p := *q
	p.Indices = q.Indices[from : from+n]
	if q.Requested != nil {
		p.Requested = q.Requested[from : from+n]
	}
	return &p
}

// A Window brings samples ahead of requests, and knows the epochs: it is the engine.
type Window interface {
	// Begin resolves a request and notes the rank's progress, before anything is looked up. It returns io.EOF past the end of a rank's epoch.
	Begin(ctx context.Context, q *Request) (Plan, error)
}

// A Plan is the window's side of one request. A request calls one method at a time.
type Plan interface {
	// Expect fills expect[i] for the samples with have[i] false. A request with a position waits for the expected ones and reads the others by index:
	// from here on nobody else begins to read those.
	Expect(indices []sample.Index, have []bool, expect []Availability)
	// LostPatience is called when a scheduled request has waited for a slot, or for read-ahead memory, until its patience was over. It makes room
	// for the samples with have[i] false if it can.
	LostPatience(indices []sample.Index, have []bool)
	// Done is called after each delivery. Only a request whose samples are lent has several.
	Done(d Delivery)
}

// Availability is what the window expects of a sample that staging lacks.
type Availability uint8

const (
	Gone    Availability = iota // not expected: fetch it by index
	Loading                     // being read
	Queued                      // its segment is next, but no slot is free
)

// A Delivery counts the samples of one answer, by origin in From. Ahead were brought ahead of the request or while it waited. Skipped samples were requested, too, and could not be
// read. Of Ahead, Prefetched were in memory when they were requested.
type Delivery struct {
	Samples, Ahead, Skipped int
	Prefetched              int
	From                    [sample.Origins]int

	Indices   []sample.Index    // of the samples
	Requested []sample.Index    // as in Batch
	Addresses []staging.Address // of the samples; nil where the memory may have another use by now

	Part  bool // more of the same chunk follows
	Ready bool // all samples were in memory when they were requested, and the client got them in one answer, by a lease
}

// Misses returns how many samples came from the source. All others are hits.
func (d *Delivery) Misses() int { return d.From[sample.FromSource] }
