package chunker

import "cmp"

// A Position names a chunk of a job: batch number Batch of a rank in an epoch, all counted from 0.
type Position struct {
	Epoch, Rank, Batch int
	Job                int // its number; 0: the job with the server's own recipe
}

// A JobRank names one rank of one job.
type JobRank struct{ Job, Rank int }

// JobRank returns the rank that reads the chunk.
func (p Position) JobRank() JobRank { return JobRank{p.Job, p.Rank} }

// At returns the position of one of the rank's chunks.
func (r JobRank) At(epoch, batch int) Position {
	return Position{Epoch: epoch, Rank: r.Rank, Batch: batch, Job: r.Job}
}

// Compare returns -1 if p comes before q in an order, 1 if it comes after q, else 0. It compares epochs, then batches, and ignores jobs and ranks.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Batch, q.Batch))
}

// Before reports whether p comes before q in an order.
func (p Position) Before(q Position) bool { return p.Compare(q) < 0 }

// Compare returns -1 if r sorts before s, 1 if it sorts after s, else 0. It compares jobs, then ranks.
func (r JobRank) Compare(s JobRank) int {
	return cmp.Or(cmp.Compare(r.Job, s.Job), cmp.Compare(r.Rank, s.Rank))
}
