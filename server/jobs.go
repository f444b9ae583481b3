package server

import (
	"lcache/internal/serve/deliver"
	"lcache/internal/surrogate"
)

// mostJobs is how many jobs one connection may name.
const mostJobs = 64

// A client names the jobs that its requests belong to: JOB gives the server a token, and is answered with a number of this connection's, which stands in the flags of later
// requests. 0 is the job of the server's own recipe.

// jobRequest is the body of JOB. Unknown keys are ignored.
type jobRequest struct {
	Token string `json:"token"`
}

func decodeJob(b []byte) (jobRequest, error) {
	var q jobRequest
	if err := surrogate.Unmarshal(b, &q); err != nil {
		return q, broken("JOB: %v", err)
	}
	return q, nil
}

// named is a job as one connection names it.
type named struct {
	token  string
	number int // of the engine
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

// numberOf is the connection's number of a token's job.
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

// leaveJobs ends the connection's part in its jobs.
func (c *conn) leaveJobs() {
	for _, j := range c.jobs {
		c.s.engine.Leave(j.number)
	}
}

// resolve puts the engine's number of a frame's job in the place of the connection's. It refuses a number that no JOB was answered with, and one that stands in a frame which
// belongs to no job.
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

// at is the position that a GET of a job names. Without one the job is named alone.
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
