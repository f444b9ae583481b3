package chunker

// A Position names a chunk of a job: the Batch-th of a rank in an epoch, all counted from 0.
type Position struct{ Epoch, Rank, Batch int }
