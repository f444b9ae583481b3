package chunker

// A Position names a chunk of a job: the Batch-th of a rank in an epoch, all counted from 0.
type Position struct {
	Epoch, Rank, Batch int
	Job                int // its number; 0: the job of the server's own recipe
}
