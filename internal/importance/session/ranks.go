package session

import (
	"maps"
	"slices"
	"time"

	"lcache/internal/importance/score"
)

// rankState is the state of one rank in a session.
type rankState struct {
	run     string           // identifies its training process
	joined  bool             // it turned on importance in this run
	at      int              // the epoch that it is in or asks for; -1: it does not report
	seen    time.Time        // its last request
	leftAt  time.Time        // when it left the trained epoch; zero: it is inside
	left    []int            // later epochs that it has already left, ascending
	reports []score.Progress // its reports about the trained epoch and the next one
}

// positions has the position of each rank of one session, and the trained epoch. Each method gets the time as an
// argument.
type positions struct {
	world     int
	silence   time.Duration        // a rank that was silent for this long may be gone
	published func(epoch int) bool // reports whether requests can read the order of an epoch

	epoch    int // the trained epoch
	ranks    map[int]*rankState
	allLocal bool // all ranks run on this machine, as the newest rank reported; false: unknown
	warned   bool // about a boundary without some ranks

	lookBegan time.Time     // when a rank began to re-evaluate the unstable samples; zero: none has
	lookTook  time.Duration // duration of the last re-evaluation
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

// join notes a rank that takes part. restarted reports that its training process is new. again reports that the whole
// run is new; then positions of the previous run are discarded.
func (p *positions) join(now time.Time, rank int, run string, allLocal bool) (restarted, again bool) {
	p.allLocal = allLocal
	if !p.isOurs(rank) {
		return false, false
	}
	r := p.rank(rank)
	restarted = r.run != run
	if again = restarted && r.joined; again {
		for _, other := range p.ranks {
			*other = rankState{run: other.run, at: -1, reports: other.reports}
		}
	}
	r.joined, r.run = true, run
	if r.at < 0 {
		r.at, r.seen = p.epoch, now
	}
	return restarted, again
}

// names notes that a rank requested samples of an epoch by index. The position of such a request is not trusted: it
// moves the rank to the next epoch at most, and never back. names reports whether there may be something to decide.
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

// asks notes that a rank asks for an epoch. It reports whether there may be something to decide. A rank that the job
// does not have is ignored.
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
		r.leftAt = time.Time{}
	case r.leftAt.IsZero():
		r.leftAt = now
	}
	return true
}

// ends notes that a rank has ended an epoch, with its report. unstable says that there are samples to re-evaluate.
// Then the rank may do so first, and counts as outside the epoch when it asks for the next one.
func (p *positions) ends(now time.Time, rank int, report score.Progress, unstable bool) {
	if !p.isOurs(rank) || report.Epoch < p.epoch || report.Epoch > p.epoch+1 {
		return
	}
	r := p.rank(rank)
	r.reports = append(slices.DeleteFunc(r.reports, func(before score.Progress) bool { return before.Epoch == report.Epoch }), report)
	switch {
	case !unstable:
		p.asks(now, rank, report.Epoch+1)
	case p.lookBegan.IsZero():
		p.lookBegan = now
	}
}

// progress returns the lowest rank's report about the trained epoch.
func (p *positions) progress() score.Progress {
	for _, rank := range slices.Sorted(maps.Keys(p.ranks)) {
		for _, report := range p.ranks[rank].reports {
			if report.Epoch == p.epoch {
				return report
			}
		}
	}
	return score.Progress{}
}

// view returns the input of decideBoundary.
func (p *positions) view(patience time.Duration) boundaryView {
	v := boundaryView{epoch: p.epoch, published: p.published, silence: p.silence, patience: patience}
	for _, r := range p.ranks {
		v.ranks = append(v.ranks, *r)
	}
	return v
}

// absent lists the ranks that have not left the trained epoch, if the boundary before epoch to deserves a warning. It
// does so once, and never if all ranks run here. The absent ranks may train on other machines.
func (p *positions) absent(to int) (ranks []int) {
	if to <= p.epoch || p.allLocal || p.warned {
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

// made notes that the boundary before epoch to is made, and that epoch is trained now. looked reports whether ranks
// re-evaluated unstable samples before it.
func (p *positions) made(now time.Time, to, epoch int, looked bool) {
	p.lookIsOver(now, looked)
	back := to < p.epoch
	p.epoch = epoch
	for _, r := range p.ranks {
		r.left = slices.DeleteFunc(r.left, func(left int) bool { return left <= epoch })
		r.reports = slices.DeleteFunc(r.reports, func(report score.Progress) bool { return report.Epoch < epoch })
		r.leftAt = time.Time{}
		switch {
		case (r.at < to || back && r.at > to) && now.Sub(r.seen) >= p.silence: // it may be gone, or it joined and has not asked yet; its next request makes it report again
			r.at = -1
		case r.at >= 0 && r.at < to && !p.published(r.at):
			r.at = to
		case r.at > to:
			r.leftAt = now
		}
	}
}

// failed notes that a boundary could not be made. The waiting ranks may ask again.
func (p *positions) failed(now time.Time, looked bool) {
	p.lookIsOver(now, looked)
	for _, r := range p.ranks {
		if r.at >= 0 {
			r.at, r.leftAt = p.epoch, time.Time{}
		}
	}
}

// lookIsOver notes how long the re-evaluation of unstable samples took.
func (p *positions) lookIsOver(now time.Time, looked bool) {
	if looked && !p.lookBegan.IsZero() {
		p.lookTook = now.Sub(p.lookBegan)
	}
	p.lookBegan = time.Time{}
}
