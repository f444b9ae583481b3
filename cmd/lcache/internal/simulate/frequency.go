package simulate

import (
	"context"
	"slices"
)

// ranking places samples as NoPFS does. A worker holds the samples that it reads at least once, sorted by number of reads, then
// by first use. It fills class 1, then class 2. So for each worker a class ends at a count of reads, at an epoch of first use
// among the samples with that count, and at a position among the samples of that epoch. Three passes over all samples find the
// three ends in turn. A fourth pass finds the place that serves each read.
type ranking struct {
	x     *exact
	table *readers
	ends  [][Classes]classEnd // by worker and class; class 0 is not used
	parts []*rankingPart
}

// classEnd is the end of a class in the order of a worker's samples. The class has the samples that are read more than count
// times. Of the samples read count times, it has the ones first used before epoch, and those first used in epoch before position.
type classEnd struct {
	count  uint32
	epoch  uint32
	before uint32
	full   uint64 // bytes of all that is read more than count times, and later those first used before epoch, too
}

// rankingPart is a run of the samples, which one core goes through.
type rankingPart struct {
	from, to int
	levels   []uint64            // by worker and count: bytes
	firsts   []uint64            // by worker, class and epoch: bytes of the samples of that end's count first used there
	many     []uint32            // the same: how many
	tied     [][Classes][]uint32 // by worker and class: samples first used in the epoch at which the class ends, ascending

	rows  []uint32 // of one block
	count []uint32 // by worker, of one sample
	first []uint32
	who   []uint32 // the workers that read the sample
}

// rankingBlock is how many samples' rows are looked at together.
const rankingBlock = 256

// rankingBytes is the memory of a ranking, without the readers' table.
func rankingBytes(samples, epochs, workers, cores float64) float64 {
	part := workers*(epochs+1)*8 + workers*Classes*(epochs*12+24) + rankingBlock*epochs*4 + workers*12
	return workers*Classes*24 + cores*part + samples*(Classes-1)*4 + 8*(samples/workers+1)*cores
}

// rank finds out from where every read of every epoch is served, and leaves it in the table.
func (x *exact) rank(ctx context.Context) (*readers, error) {
	table, err := newReaders(ctx, x)
	if err != nil {
		return nil, err
	}
	r := &ranking{x: x, table: table, ends: make([][Classes]classEnd, x.workers), parts: make([]*rankingPart, min(x.cores, len(x.sizes)))}
	split(x.cores, len(x.sizes), func(core, from, to int) {
		r.parts[core] = r.newPart(from, to)
		r.eachSample(r.parts[core], r.addLevel)
	})
	x.progress(0.35)
	r.endCounts()
	r.eachPart(func(p *rankingPart) { r.eachSample(p, r.addFirst) })
	x.progress(0.4)
	r.endEpochs()
	r.eachPart(func(p *rankingPart) {
		r.makeTied(p)
		r.eachSample(p, r.addTied)
	})
	x.progress(0.45)
	if err := r.endPositions(ctx); err != nil {
		return nil, err
	}
	r.eachPart(func(p *rankingPart) { r.eachSample(p, r.serve) })
	x.progress(0.5)
	return table, nil
}

func (r *ranking) newPart(from, to int) *rankingPart {
	n, e := r.x.workers, r.x.epochs
	return &rankingPart{from: from, to: to, levels: make([]uint64, n*(e+1)), firsts: make([]uint64, n*Classes*e), many: make([]uint32, n*Classes*e),
		tied: make([][Classes][]uint32, n), rows: make([]uint32, rankingBlock*e), count: make([]uint32, n), first: make([]uint32, n), who: make([]uint32, 0, min(n, e))}
}

// eachPart goes through all parts, each on a core of its own.
func (r *ranking) eachPart(do func(*rankingPart)) {
	split(len(r.parts), len(r.parts), func(core, _, _ int) { do(r.parts[core]) })
}

// eachSample calls do for every sample of a part, with the row of its readers; the part says who they are, how often and
// from when on.
func (r *ranking) eachSample(p *rankingPart, do func(p *rankingPart, k int, row []uint32)) {
	epochs := r.x.epochs
	for from := p.from; from < p.to; from += rankingBlock {
		to := min(from+rankingBlock, p.to)
		r.table.load(p.rows, from, to)
		for k := from; k < to; k++ {
			row := p.rows[(k-from)*epochs : (k-from+1)*epochs]
			p.who = p.who[:0]
			for e, worker := range row {
				if worker == noReader {
					continue
				}
				if p.count[worker] == 0 {
					p.first[worker] = uint32(e)
					p.who = append(p.who, worker)
				}
				p.count[worker]++
			}
			do(p, k, row)
			for _, worker := range p.who {
				p.count[worker] = 0
			}
		}
	}
}

func (r *ranking) addLevel(p *rankingPart, k int, _ []uint32) {
	for _, worker := range p.who {
		p.levels[int(worker)*(r.x.epochs+1)+int(p.count[worker])] += uint64(r.x.sizes[k])
	}
}

// endCounts finds the count at which each class of each worker ends; 0 if it has room for all that is ever read.
func (r *ranking) endCounts() {
	for i := range r.ends {
		running, limit := uint64(0), uint64(0)
		count := r.x.epochs
		for j := 1; j < Classes; j++ {
			limit += wholeBytes(r.x.s.Machine.Capacity[j])
			for ; count > 0; count-- {
				level := uint64(0)
				for _, p := range r.parts {
					level += p.levels[i*(r.x.epochs+1)+count]
				}
				if running+level > limit {
					break
				}
				running += level
			}
			r.ends[i][j] = classEnd{count: uint32(count), full: running}
		}
	}
}

func (r *ranking) at(worker uint32, class int, epoch uint32) int {
	return (int(worker)*Classes+class)*r.x.epochs + int(epoch)
}

func (r *ranking) addFirst(p *rankingPart, k int, _ []uint32) {
	for _, worker := range p.who {
		for j := 1; j < Classes; j++ {
			if r.ends[worker][j].count == p.count[worker] {
				at := r.at(worker, j, p.first[worker])
				p.firsts[at] += uint64(r.x.sizes[k])
				p.many[at]++
			}
		}
	}
}

// endEpochs finds the epoch of first use at which each class ends.
func (r *ranking) endEpochs() {
	for i := range r.ends {
		limit := uint64(0)
		for j := 1; j < Classes; j++ {
			limit += wholeBytes(r.x.s.Machine.Capacity[j])
			end := &r.ends[i][j]
			for end.epoch = 0; int(end.epoch) < r.x.epochs; end.epoch++ {
				bytes := uint64(0)
				for _, p := range r.parts {
					bytes += p.firsts[r.at(uint32(i), j, end.epoch)]
				}
				if end.full+bytes > limit {
					break
				}
				end.full += bytes
			}
		}
	}
}

func (r *ranking) makeTied(p *rankingPart) {
	for i := range r.ends {
		for j := 1; j < Classes; j++ {
			if end := r.ends[i][j]; end.count > 0 && int(end.epoch) < r.x.epochs {
				p.tied[i][j] = make([]uint32, 0, p.many[r.at(uint32(i), j, end.epoch)])
			}
		}
	}
}

func (r *ranking) addTied(p *rankingPart, k int, _ []uint32) {
	for _, worker := range p.who {
		for j := 1; j < Classes; j++ {
			if end := &r.ends[worker][j]; end.count == p.count[worker] && end.epoch == p.first[worker] {
				p.tied[worker][j] = append(p.tied[worker][j], uint32(k))
			}
		}
	}
}

// endPositions finds the position at which each class ends, and leaves of the tied samples those before it.
func (r *ranking) endPositions(ctx context.Context) error {
	r.x.orders.forget()
	for epoch := range uint32(r.x.epochs) {
		if !slices.ContainsFunc(r.ends, func(ends [Classes]classEnd) bool { return ends[1].epoch == epoch || ends[2].epoch == epoch }) {
			continue
		}
		err := r.x.orders.use(ctx, int(epoch), func(positions []uint32) {
			split(r.x.cores, r.x.workers, func(_, from, to int) {
				var scratch []uint64
				for i := from; i < to; i++ {
					limit := uint64(0)
					for j := 1; j < Classes; j++ {
						limit += wholeBytes(r.x.s.Machine.Capacity[j])
						if r.ends[i][j].epoch == epoch {
							scratch = r.endPosition(i, j, limit, positions, scratch)
						}
					}
				}
			})
		})
		r.x.orders.forget()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *ranking) endPosition(worker, class int, limit uint64, positions []uint32, scratch []uint64) []uint64 {
	tied, end := scratch[:0], &r.ends[worker][class]
	total := 0
	for _, p := range r.parts {
		total += len(p.tied[worker][class])
	}
	tied = slices.Grow(tied, total)
	for _, p := range r.parts {
		for _, k := range p.tied[worker][class] {
			tied = append(tied, uint64(positions[k])<<32|uint64(r.x.sizes[k]))
		}
	}
	slices.Sort(tied)
	end.before = nowhere
	running := end.full
	for _, t := range tied {
		if running += t & 0xffffffff; running > limit {
			end.before = uint32(t >> 32)
			break
		}
	}
	for _, p := range r.parts {
		p.tied[worker][class] = slices.DeleteFunc(p.tied[worker][class], func(k uint32) bool { return positions[k] >= end.before })
	}
	return tied
}

// classOf is the class in which a worker holds a sample, by how often and from when on it reads it. Samples of a part must
// be asked for in ascending order, and each once.
func (r *ranking) classOf(p *rankingPart, worker uint32, k int) uint8 {
	count, first := p.count[worker], p.first[worker]
	class := uint8(0)
	for j := Classes - 1; j > 0; j-- {
		end := &r.ends[worker][j]
		switch {
		case count > end.count, count == end.count && first < end.epoch:
			class = uint8(j)
		case count == end.count && first == end.epoch:
			if tied := p.tied[worker][j]; len(tied) > 0 && tied[0] == uint32(k) {
				class = uint8(j)
				p.tied[worker][j] = tied[1:]
			}
		}
	}
	return class
}

// serve decides from where a sample's readers get it.
func (r *ranking) serve(p *rankingPart, k int, row []uint32) {
	best := uint8(0)
	for _, worker := range p.who {
		class := r.classOf(p, worker, k)
		p.first[worker] = uint32(class) // from here on
		if class > 0 && (best == 0 || class < best) {
			best = class
		}
	}
	pick := &r.x.pick
	for e, worker := range row {
		if worker != noReader {
			r.table.replace(e, k, pick[p.first[worker]][best])
		}
	}
}
