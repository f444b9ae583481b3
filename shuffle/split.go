package shuffle

// Split maps the positions of one epoch's global order to ranks and batches: each (rank, batch) has a list of
// positions. A position that is delivered twice, as padding, occurs twice, and a dropped position does not occur. A
// Split has no state: it may be copied, and used from several goroutines.
type Split struct {
	world     int
	batch     int  // samples a batch of one rank; 0: everything in one batch
	dropShort bool // the loader drops a rank's last, short batch
	deal      dealer
}

// dealer computes parts of a rank's list of positions without building the whole list. In every framework here the
// split is such a list, cut into batches of one size from its beginning.
type dealer interface {
	// length returns the number of samples of a rank.
	length(rank int) int
	// fill appends the rank's positions from..to-1 to dst. 0 <= from <= to <= length(rank).
	fill(rank, from, to int, dst []uint64) []uint64
}

// World returns the number of ranks.
func (s Split) World() int { return s.world }

// BatchSize returns the number of samples in a batch of one rank; 0: the whole epoch is one batch.
func (s Split) BatchSize() int { return s.batch }

// Len returns the number of samples of a rank in this epoch; 0 for a rank that does not exist.
func (s Split) Len(rank int) int {
	if rank < 0 || rank >= s.world {
		return 0
	}
	n := s.deal.length(rank)
	if s.dropShort && s.batch > 0 {
		n -= n % s.batch
	}
	return n
}

// Batches returns the number of batches of a rank in this epoch.
func (s Split) Batches(rank int) int {
	n := s.Len(rank)
	switch {
	case n == 0:
		return 0
	case s.batch == 0:
		return 1
	}
	return (n-1)/s.batch + 1
}

// Positions appends to dst[:0] the positions in the global order of the samples of one batch, in delivery
// order. A batch that does not exist is empty. It costs O(batch).
func (s Split) Positions(rank, batch int, dst []uint64) []uint64 {
	dst = dst[:0]
	if batch < 0 || batch >= s.Batches(rank) {
		return dst
	}
	n := s.Len(rank)
	if s.batch == 0 {
		return s.deal.fill(rank, 0, n, dst)
	}
	from := batch * s.batch // no overflow: from < n
	return s.deal.fill(rank, from, min(n-from, s.batch)+from, dst)
}

// whole deals everything to the only rank.
type whole struct{ n int }

func (w whole) length(int) int { return w.n }

func (w whole) fill(_, from, to int, dst []uint64) []uint64 {
	for k := from; k < to; k++ {
		dst = append(dst, uint64(k))
	}
	return dst
}

// strided deals positions r, r+W, r+2W, … to rank r: each samples in total. After the last position it continues from the first.
type strided struct {
	n, world int
	each     int // samples of each rank; 0 when n is 0
}

func (s strided) length(int) int { return s.each }

func (s strided) fill(rank, from, to int, dst []uint64) []uint64 {
	if from >= to {
		return dst
	}
	n, world := uint64(s.n), uint64(s.world)
	p := uint64(rank) + uint64(from)*world
	for range to - from {
		if p < n {
			dst = append(dst, p)
		} else {
			dst = append(dst, p%n)
		}
		p += world
	}
	return dst
}
