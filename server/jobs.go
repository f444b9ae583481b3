package server

import (
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/deliver"
)

// mostJobs is how many jobs one connection may name.
const mostJobs = 64

// A client's requests name a job. JOB sends the server a token; the answer is a number, valid on this connection, for the flags of later requests. 0 is
// the job of the server's own recipe.

// jobRequest is the body of JOB. Unknown keys are ignored.
type jobRequest struct {
	Token string `json:"token"`
}

func decodeJob(b []byte) (jobRequest, error) {
	var q jobRequest
	if err := jsonbytes.Unmarshal(b, &q); err != nil {
		return q, broken("JOB: %v", err)
	}
	return q, nil
}

// named is a job that a connection has joined.
type named struct {
	token  string
	number int // the engine's number
}

// join answers JOB. The same token has the same number.
func (c *conn) join(q *request) error {
	said, err := decodeJob(q.body)
	if err != nil {
		return err
	}
	number, err := c.numberOf(said.Token)
	if err != nil {
		return err
	}
	c.out, err = appendJSON(c.out, typeJSON, q.request, map[string]int{"job": number})
	return err
}

// numberOf returns the connection's number for a token's job.
func (c *conn) numberOf(token string) (int, error) {
	for i, j := range c.jobs { // only this goroutine changes the list
		if j.token == token {
			return i + 1, nil
		}
	}
	if len(c.jobs) == mostJobs {
		return 0, argument("this connection has named %d jobs already: open another one", mostJobs)
	}
	number, err := c.s.engine.Join(token)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, named{token, number})
	return len(c.jobs), nil
}

// leaveJobs leaves the connection's jobs.
func (c *conn) leaveJobs() {
	for _, j := range c.jobs {
		c.s.engine.Leave(j.number)
	}
}

// resolve replaces the connection's job number in a frame by the engine's. It refuses a number that no JOB was answered with, and a job number in a
// frame that has none.
func (c *conn) resolve(f *frame) error {
	if f.job == 0 {
		return nil
	}
	switch f.kind {
	case typeChunk, typeGet, typePush, typeLend, typeReport, typeImportance, typeObserve, typeEpochEnd, typeReevaluate, typeOrder, typeWeights:
	default:
		return broken("frame flags %#x: requests of type %d belong to no job", f.job, f.kind)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.job > len(c.jobs) {
		return broken("frame flags %#x: this connection has named %d jobs", f.job, len(c.jobs))
	}
	f.job = c.jobs[f.job-1].number
	return nil
}

func position(job, epoch, rank, batch int) deliver.Position {
	return deliver.Position{Job: job, Epoch: epoch, Rank: rank, Batch: batch}
}

// at returns the position in a GET of a job, or the job alone if the GET has no position.
func (f *frame) at(said *deliver.Position) *deliver.Position {
	switch {
	case f.job == 0:
		return said
	case said == nil:
		return &deliver.Position{Job: f.job, Rank: -1}
	}
	at := *said
	at.Job = f.job
	return &at
}
