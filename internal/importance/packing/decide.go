package packing

import (
	"fmt"

	"lcache/internal/importance/substitute"
	"lcache/logfile"
)

// mostVictims is how many pieces are emptied in turns. A package is a mixture of their samples then, also where neighbours in a segment are of one class.
const mostVictims = 8

// A piece names a segment of a Logfile, or a package, by half and number.
type piece struct{ half, number int }

func (p piece) String() string {
	if p.half == logfile.PackageHalf {
		return fmt.Sprintf("package %d", p.number)
	}
	return fmt.Sprintf("segment %d of Logfile %c", p.number, 'A'+p.half)
}

// isPackage reports whether the piece is a package, which is freed as a whole.
func (p piece) isPackage() bool { return p.half == logfile.PackageHalf }

// view is the state as decide sees it.
type view struct {
	geometry geometry
	spare    int                  // places of blocks that are free, and not needed for what open packages hold in memory
	handed   bool                 // a copy of a sample is in the ring
	victims  int                  // pieces that are being emptied
	next     func() (piece, bool) // the piece to empty next

	// Of the first victim.
	state    victimState
	fits     bool // free places suffice for its next samples
	mayWrite bool // the job has consumed as many bytes as they take
}

type actionKind uint8

const (
	actWait   actionKind = iota
	actPack              // the first sample of the ring
	actChoose            // a piece becomes a victim
	actScan              // the first victim
	actMove              // a run of the first victim's samples
	actKeep              // the first victim stays as it is until the next epoch
)

// action is the worker's next step, and why it is taken.
type action struct {
	kind  actionKind
	piece piece // with actChoose
	why   string
}

func (a action) String() string {
	switch a.kind {
	case actPack:
		return "pack a sample"
	case actChoose:
		return "choose " + a.piece.String()
	case actScan:
		return "scan the first victim"
	case actMove:
		return "move a run of the first victim"
	case actKeep:
		return "keep the first victim"
	}
	return "wait"
}

// decide is the worker's next step while it has the turn.
func decide(v view) action {
	if v.handed {
		return action{kind: actPack, why: "deliveries need the room in the ring"}
	}
	if v.victims < mostVictims && v.geometry.hasPlacesFor(v.victims+1, v.spare) {
		if next, ok := v.next(); ok {
			return action{kind: actChoose, piece: next, why: "few places are free"}
		}
	}
	switch {
	case v.victims == 0:
		return action{why: "nothing is to be emptied"}
	case v.state == victimChosen:
		return action{kind: actScan, why: "its live samples are not listed"}
	case !v.fits: // the places may come from another victim
		return action{kind: actKeep, why: "too few places are free for its next sample"}
	case !v.mayWrite:
		return action{why: "the job has consumed fewer bytes"}
	}
	return action{kind: actMove, why: "its samples are listed"}
}

// nextVictim is the piece to empty next: a sparse segment of a Logfile before a sparse package, and that before a dense segment. A dense segment frees no more places than its samples take, and some are wasted
// in each package.
func nextVictim(pieces *pieces, space substitute.Space) (next piece, ok bool) {
	for half, list := range pieces {
		number := substitute.Victim(list, space)
		switch {
		case number < 0:
		case list[number].IsSparse():
			return piece{half, number}, true
		case !ok:
			next, ok = piece{half, number}, true
		}
	}
	return next, ok
}

// A victim ages through these states.
type victimState uint8

const (
	victimChosen victimState = iota // its live samples are to be listed; again when all that were listed have left
	victimListed                    // some listed samples are left to move
	victimFreed                     // nothing lived in it: its places are free
	victimKept                      // it stays as it is until the next epoch
)

func (s victimState) String() string { return [...]string{"chosen", "listed", "freed", "kept"}[s] }

// isOver reports whether the victim leaves the list.
func (s victimState) isOver() bool { return s >= victimFreed }

// scanned is the state of a victim in which a scan has found n live samples. What is to be freed is freed in the same turn: others may append to it after that.
func scanned(n int) victimState {
	if n == 0 {
		return victimFreed
	}
	return victimListed
}

// moved is the state of a victim after a run whose last sample had a fate, with n listed samples left.
func moved(last fate, n int) victimState {
	switch {
	case last == never:
		return victimKept
	case n == 0:
		return victimChosen
	}
	return victimListed
}

// fate is where a sample goes.
type fate uint8

const (
	stay  fate = iota // where it is
	pack              // into a package
	later             // nothing may be written now
	never             // it does not fit into a package, is not kept, or is unreadable
)

func (f fate) String() string { return [...]string{"stay", "pack", "later", "never"}[f] }

// sampleView is a sample as decideSample sees it.
type sampleView struct {
	emptied bool // it comes from a victim; else from the ring

	// Of a victim's sample.
	hasLeft bool // it was moved or lost since the scan

	// Of a sample in the ring.
	kept   bool // this machine's log keeps it
	stored bool // it lies in the log
	high   bool // it is an H-sample
	packed bool // it lies in a package of L-samples
	short  bool // too few places are free

	mayWrite bool // the job has consumed as many bytes as the sample takes
}

// decideSample returns where a sample goes. H-samples come from memory in most epochs, so they are packed only to empty a victim, or when they lie nowhere.
func decideSample(s sampleView) fate {
	switch {
	case s.emptied && s.hasLeft:
		return stay
	case !s.emptied && !s.kept:
		return never
	case !s.emptied && s.stored && (s.high || s.packed):
		return stay
	case !s.emptied && s.short, !s.mayWrite:
		return later
	}
	return pack
}
