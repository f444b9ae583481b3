package packing

import (
	"fmt"

	"lcache/internal/importance/substitute"
	"lcache/logfile"
)

// mostVictims is the number of pieces that are emptied in turns. Samples of several pieces mix in a package, so a
// package is a mixture even if all samples of a segment have one class.
const mostVictims = 8

// A piece is a segment of a Logfile, or a package.
type piece struct{ num, number int }

func (p piece) String() string {
	if p.num == logfile.PackagesNum {
		return fmt.Sprintf("package %d", p.number)
	}
	return fmt.Sprintf("segment %d of Logfile %c", p.number, 'A'+p.num)
}

// isPackage reports whether the piece is a package, which is freed as a whole.
func (p piece) isPackage() bool { return p.num == logfile.PackagesNum }

// view is the input of decide.
type view struct {
	geometry geometry
	spare    int                  // free arena blocks, minus the blocks that open packages need for their samples in memory
	handed   bool                 // the ring has a copy of a sample
	victims  int                  // number of pieces that are being emptied
	next     func() (piece, bool) // the piece to empty next

	// The first victim.
	state    victimState
	fits     bool // the free arena blocks are enough for its next samples
	mayWrite bool // the job has consumed as many bytes as its next samples have
}

type actionKind uint8

const (
	actWait   actionKind = iota
	actPack              // pack the first sample of the ring
	actChoose            // make a piece a victim
	actScan              // list the live samples of the first victim
	actMove              // move a run of the first victim's samples
	actKeep              // leave the first victim as it is until the next epoch
)

// action is the worker's next step, with its reason.
type action struct {
	kind  actionKind
	piece piece // set with actChoose
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

// decide returns the worker's next step. The worker has the turn.
func decide(v view) action {
	if v.handed {
		return action{kind: actPack, why: "the ring has a sample, and deliveries need its room"}
	}
	if v.victims < mostVictims && v.geometry.hasPlacesFor(v.victims+1, v.spare) {
		if next, ok := v.next(); ok {
			return action{kind: actChoose, piece: next, why: "few arena blocks are free"}
		}
	}
	switch {
	case v.victims == 0:
		return action{why: "no piece has to be emptied"}
	case v.state == victimChosen:
		return action{kind: actScan, why: "its live samples are not listed yet"}
	case !v.fits: // another victim may free enough
		return action{kind: actKeep, why: "too few arena blocks are free for its next sample"}
	case !v.mayWrite:
		return action{why: "the job has consumed fewer bytes than its next samples have"}
	}
	return action{kind: actMove, why: "its samples are listed"}
}

// nextVictim returns the piece to empty next: a sparse segment, else a sparse package, else a dense segment. A dense
// segment comes last because it frees no more blocks than its samples need elsewhere, and each package wastes some
// space.
func nextVictim(pieces *pieces, space substitute.Space) (next piece, ok bool) {
	for num, list := range pieces {
		number := substitute.Victim(list, space)
		switch {
		case number < 0:
		case list[number].IsSparse():
			return piece{num, number}, true
		case !ok:
			next, ok = piece{num, number}, true
		}
	}
	return next, ok
}

// victimState is the progress of a victim, in this order.
type victimState uint8

const (
	victimChosen victimState = iota // its live samples must be listed: at first, and again when all listed samples have left
	victimListed                    // some listed samples still have to move
	victimFreed                     // no sample lived in it, and its blocks are free
	victimKept                      // it stays as it is until the next epoch
)

func (s victimState) String() string { return [...]string{"chosen", "listed", "freed", "kept"}[s] }

// isOver reports whether the victim is done.
func (s victimState) isOver() bool { return s >= victimFreed }

// scanned returns the state of a victim after a scan found n live samples in it. An empty victim must be freed in the
// same turn, because others may append to it after the turn.
func scanned(n int) victimState {
	if n == 0 {
		return victimFreed
	}
	return victimListed
}

// moved returns the state of a victim after a run. last is the fate of the run's last sample, and n the number of
// listed samples left.
func moved(last fate, n int) victimState {
	switch {
	case last == never:
		return victimKept
	case n == 0:
		return victimChosen
	}
	return victimListed
}

// fate is the decision about a sample.
type fate uint8

const (
	stay  fate = iota // leave it where it is
	pack              // put it into a package
	later             // try again later: no bytes may be written now
	never             // never pack it: it does not fit into a package, is not kept, or is unreadable
)

func (f fate) String() string { return [...]string{"stay", "pack", "later", "never"}[f] }

// sampleView is the input of decideSample.
type sampleView struct {
	emptied bool // it comes from a victim; otherwise from the ring

	// Only for a sample of a victim.
	hasLeft bool // it was moved or lost since the scan

	// Only for a sample in the ring.
	kept   bool // this machine's log keeps it
	stored bool // it is in the log
	high   bool // it is an H-sample
	packed bool // it is in a package of L-samples
	short  bool // too few arena blocks are free

	mayWrite bool // the job has consumed as many bytes as the sample takes
}

// decideSample returns the fate of a sample. In most epochs H-samples come from memory. So they are packed only to
// empty a victim, or if the log does not have them.
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
