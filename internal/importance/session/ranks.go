package session

import (
	"maps"
	"slices"
	"time"

	"lcache/internal/importance/score"
)

// rankState is the state of one rank in a session.
type rankState struct {
	run    string           // its training process
	joined bool             // it turned on importance in the present run
	at     int              // the epoch that it is in or asks for; -1: it does not report
	seen   time.Time        // its last request
	came   time.Time        // when it left the trained epoch; zero: it is inside
	left   []int            // epochs after the trained one that it has left again, ascending
	said   []score.Progress // reports about the trained epoch and the next one
}

// positions are the ranks of one session, and the epoch that they train. A time is an argument of each method.
type positions struct {
	world     int
	silence   time.Duration        // after which a rank that was not seen may be gone
	published func(epoch int) bool // requests can read its order

	epoch   int // that is trained
	ranks   map[int]*rankState
	allHere bool // all ranks run on this machine, as the newest of them knows; false: unknown
	warned  bool // of a boundary without some ranks

	lookBegan time.Time     // when a rank began to look at the unstable samples again; zero: none does
	lookTook  time.Duration // the last time
}

// isOurs reports whether a rank shares the job's epochs.
func (p *positions) isOurs(rank int) bool { return rank >= 0 && rank < p.world }

func (p *positions) rank(rank int) *rankState {
	r := p.ranks[rank]
	if r == nil {
		r = &rankState{at: -1}
		p.ranks[rank] = r
	}
	return r
}

// join notes a rank that takes part. restarted reports that its process is a new one, and again that the whole run is: then positions of the previous run are discarded.
func (p *positions) join(now time.Time, rank int, run string, allHere bool) (restarted, again bool) {
	p.allHere = allHere
	if !p.isOurs(rank) {
		return false, false
	}
	r := p.rank(rank)
	restarted = r.run != run
	if again = restarted && r.joined; again {
		for _, other := range p.ranks {
			*other = rankState{run: other.run, at: -1, said: other.said}
		}
	}
	r.joined, r.run = true, run
	if r.at < 0 {
		r.at, r.seen = p.epoch, now
	}
	return restarted, again
}

// names notes that a rank names samples of an epoch. The position of a request by index is not trusted: it moves the rank to the next epoch at most, and never back from there. names reports whether there
// may be something to decide.
func (p *positions) names(now time.Time, rank, epoch int) bool {
	if !p.isOurs(rank) {
		return false
	}
	r := p.rank(rank)
	if epoch == p.epoch+1 || epoch == p.epoch && r.at <= epoch {
		return p.asks(now, rank, epoch)
	}
	r.seen = now
	return false
}

// asks notes that a rank asks for an epoch, and reports whether there may be something to decide. A rank that the job does not have moves nothing.
func (p *positions) asks(now time.Time, rank, epoch int) bool {
	if !p.isOurs(rank) {
		return false
	}
	r := p.rank(rank)
	r.seen = now
	if r.at == epoch && epoch <= p.epoch && p.published(epoch) {
		return false
	}
	if r.at > p.epoch && r.at < epoch {
		if k, noted := slices.BinarySearch(r.left, r.at); !noted {
			r.left = slices.Insert(r.left, k, r.at)
		}
	}
	r.at = epoch
	switch {
	case epoch <= p.epoch:
		r.came = time.Time{}
	case r.came.IsZero():
		r.came = now
	}
	return true
}

// ends notes that a rank has ended an epoch, and its report. unstable says that there are samples to look at again: then the rank may do so first, and has ended when it asks for the next epoch.
func (p *positions) ends(now time.Time, rank int, said score.Progress, unstable bool) {
	if !p.isOurs(rank) || said.Epoch < p.epoch || said.Epoch > p.epoch+1 {
		return
	}
	r := p.rank(rank)
	r.said = append(slices.DeleteFunc(r.said, func(before score.Progress) bool { return before.Epoch == said.Epoch }), said)
	switch {
	case !unstable:
		p.asks(now, rank, said.Epoch+1)
	case p.lookBegan.IsZero():
		p.lookBegan = now
	}
}

// progress returns the report of the lowest rank about the trained epoch.
func (p *positions) progress() score.Progress {
	for _, rank := range slices.Sorted(maps.Keys(p.ranks)) {
		for _, said := range p.ranks[rank].said {
			if said.Epoch == p.epoch {
				return said
			}
		}
	}
	return score.Progress{}
}

// view returns the positions as decideBoundary sees them.
func (p *positions) view(patience time.Duration) boundaryView {
	v := boundaryView{epoch: p.epoch, published: p.published, silence: p.silence, patience: patience}
	for _, r := range p.ranks {
		v.ranks = append(v.ranks, *r)
	}
	return v
}

// absent lists the ranks that have not left the trained epoch, if that is worth a warning before the boundary of an epoch: it is so once, unless all ranks run here. They may train on other machines.
func (p *positions) absent(to int) (ranks []int) {
	if to <= p.epoch || p.allHere || p.warned {
		return nil
	}
	for rank := range p.world {
		if r := p.ranks[rank]; r == nil || r.at <= p.epoch {
			ranks = append(ranks, rank)
		}
	}
	p.warned = len(ranks) > 0
	return ranks
}

// made notes that the boundary before an epoch is made, after which another one is trained. looked reports whether ranks looked at unstable samples before.
func (p *positions) made(now time.Time, to, epoch int, looked bool) {
	p.lookIsOver(now, looked)
	back := to < p.epoch
	p.epoch = epoch
	for _, r := range p.ranks {
		r.left = slices.DeleteFunc(r.left, func(left int) bool { return left <= epoch })
		r.said = slices.DeleteFunc(r.said, func(said score.Progress) bool { return said.Epoch < epoch })
		r.came = time.Time{}
		switch {
		case (r.at < to || back && r.at > to) && now.Sub(r.seen) >= p.silence: // it may be gone, or has joined and not asked yet; its next request makes it report again
			r.at = -1
		case r.at >= 0 && r.at < to && !p.published(r.at):
			r.at = to
		case r.at > to:
			r.came = now
		}
	}
}

// failed notes that a boundary can't be made. The ranks that waited for it may ask again.
func (p *positions) failed(now time.Time, looked bool) {
	p.lookIsOver(now, looked)
	for _, r := range p.ranks {
		if r.at >= 0 {
			r.at, r.came = p.epoch, time.Time{}
		}
	}
}

// lookIsOver notes how long a look at unstable samples took.
func (p *positions) lookIsOver(now time.Time, looked bool) {
	if looked && !p.lookBegan.IsZero() {
		p.lookTook = now.Sub(p.lookBegan)
	}
	p.lookBegan = time.Time{}
}
