package ingest

// A fate is what becomes of a cache that is found, or of its log.
type fate uint8

const (
	keep   fate = iota // as it is; of the log: nothing is to be read or moved
	adapt              // to a changed source: only what is new is read
	anew               // what it holds is given up
	begin              // the log: there is none that holds anything
	finish             // the log: complete what the job before this one was sorting, and look again
	resort             // the log: sort it into the first epoch's order, and look again
	fill               // the log: read what it lacks
)

func (f fate) String() string {
	return [...]string{"keep", "adapt", "anew", "begin", "finish", "resort", "fill"}[f]
}

// manifestState is how the manifest of a cache that is found compares with the source's listing.
type manifestState uint8

const (
	manifestLost    manifestState = iota // or damaged
	manifestSame                         // every sample is what and where it was
	manifestChanged                      // or only labels
)

// found is what is known of a cache before its log is opened.
type found struct {
	record       bool // a job.json of this source, whole
	otherBudget  bool // it was made with another budget than the one that is asked for
	otherPacking bool // it is compressed, and must not be, or the other way around
	packed       bool // it is compressed
	manifest     manifestState
	sums         bool // without a manifest: the checksums are of just this listing
}

// decideCache is the fate of a cache, and why.
func decideCache(f found) (fate, string) {
	switch {
	case !f.record:
		return anew, "there is no cache yet"
	case f.otherBudget:
		return anew, "it has another budget"
	case f.otherPacking:
		return anew, "its compression is another one"
	case f.manifest == manifestSame:
		return keep, "the source is the same"
	case f.manifest == manifestLost && f.sums:
		return keep, "its checksums are of this listing: the manifest is written again"
	case f.manifest == manifestLost:
		return anew, "which samples it holds is not known"
	case f.packed:
		return anew, "what a compressed log holds can be found only by the lengths of the manifest that it was made for"
	}
	return adapt, "the source has changed"
}

// foundLog is what is known of the log once it is opened.
type foundLog struct {
	holds bool // a Logfile holds samples; what follows is of the newer one, if both do
	two   bool // both Logfiles hold samples: a sort was cut off
	older bool // a Logfile is of a replaced manifest, and holds samples

	first   bool        // it is in the first epoch's order
	fits    bool        // it can be filled further: it is in the order of an epoch of this job; in the static layout, of the first one
	ofOld   func() bool // it was being filled for an epoch of the job before this one, whose order is known
	resort  bool        // it was sorted just now
	recipe  bool        // the job has one: else the order is the clients' to push
	static  bool        // samples are to stay where they are packed
	nothing bool        // nothing is to be read: the log has all that it is to keep, or no prefill is wanted
	all     bool        // the log has all that it is to keep
}

// decideLog is the fate of the log, and why.
func decideLog(f foundLog) (fate, string) {
	fits := f.fits && !(f.first && f.two) // what a sort that was cut off left lies in the places that new samples need
	switch {
	case !f.holds:
		return begin, "no Logfile holds anything"
	case f.static && f.all && !f.older:
		return keep, "all of it is there, and no order matters: reads across two blocks cost less than moving everything"
	case f.resort:
		return fill, "it was sorted for this"
	case fits && !f.first && f.nothing:
		return keep, "the job has run on: its log is in use"
	case fits:
		return fill, "it is in the order of an epoch of this job"
	case !f.recipe && !f.static && !f.older && f.nothing:
		return keep, "a client will push the order: it may be the one that the log is in"
	case f.two && f.ofOld():
		return finish, "the order of what the job before was sorting is known now, and not later"
	case f.first:
		return resort, "a sort was cut off"
	}
	return resort, "it is in another order"
}
