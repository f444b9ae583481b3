package ingest

// A decision is what ingest does with an existing cache, or with its log.
type decision uint8

const (
	keep    decision = iota // it stays as it is; for the log: no sample must be read or moved
	adapt                   // to a changed source: only new samples are read
	remake                  // made again, without its samples
	begin                   // the log: begin a Logfile, because none has samples
	finish                  // the log: complete the sort of the previous job, and decide again
	sortLog                 // the log: sort it into the first epoch's order, and decide again
	fill                    // the log: read the missing samples
)

// String returns the name that tests and log messages use.
func (d decision) String() string {
	return [...]string{"keep", "adapt", "remake", "begin", "finish", "resort", "fill"}[d]
}

// manifestState is how the manifest of a cache that is found compares with the source's listing.
type manifestState uint8

const (
	manifestLost    manifestState = iota // missing or damaged
	manifestSame                         // every sample has the same bytes and the same index
	manifestChanged                      // samples or labels have changed
)

// found has the facts of a cache before its log is opened.
type found struct {
	record       bool // it has an undamaged job.json of this source
	otherBudget  bool // it was made with another budget than the requested one
	otherPacking bool // it is compressed and should not be, or the reverse
	packed       bool // it is compressed
	manifest     manifestState
	sums         bool // the manifest is lost, and the checksums belong to this listing
}

// decideCache decides what to do with a cache, and why.
func decideCache(f found) (decision, string) {
	switch {
	case !f.record:
		return remake, "there is no cache yet"
	case f.otherBudget:
		return remake, "it has another budget"
	case f.otherPacking:
		return remake, "its compression is another one"
	case f.manifest == manifestSame:
		return keep, "the source is the same"
	case f.manifest == manifestLost && f.sums:
		return keep, "its checksums are of this listing: the manifest is written again"
	case f.manifest == manifestLost:
		return remake, "its samples are unknown"
	case f.packed:
		return remake, "a compressed log can be read only with the lengths of its own manifest"
	}
	return adapt, "the source has changed"
}

// foundLog has the facts of the log after it is opened.
type foundLog struct {
	holds bool // a Logfile holds samples; the later fields are about the newer one if both do
	two   bool // both Logfiles have samples: a sort was interrupted
	older bool // a Logfile of a replaced manifest holds samples

	first   bool        // it is in the first epoch's order
	fits    bool        // it can be filled further: it is in the order of an epoch of this job; in the static layout, of the first epoch
	ofOld   func() bool // it was being filled for an epoch of the previous job, and the order of that epoch is known
	resort  bool        // this ingest has just sorted it
	recipe  bool        // the job has a recipe: without one, clients push the order
	static  bool        // the layout is static
	nothing bool        // no sample must be read: the log has all admitted samples, or prefill is off
	all     bool        // the log has all admitted samples
}

// decideLog decides what to do with the log, and why.
func decideLog(f foundLog) (decision, string) {
	fits := f.fits && !(f.first && f.two) // samples that an interrupted sort has left take the room of new samples
	switch {
	case !f.holds:
		return begin, "no Logfile has samples"
	case f.static && f.all && !f.older:
		return keep, "all samples are there, and the static layout needs no order: reads across two blocks cost less than moving all samples"
	case f.resort:
		return fill, "it was just sorted into this order"
	case fits && !f.first && f.nothing:
		return keep, "the job has run on: its log is in use"
	case fits:
		return fill, "it is in the order of an epoch of this job"
	case !f.recipe && !f.static && !f.older && f.nothing:
		return keep, "a client will push the order: it may be the one that the log is in"
	case f.two && f.ofOld():
		return finish, "the order of the previous job's sort is known only now"
	case f.first:
		return sortLog, "a sort was interrupted"
	}
	return sortLog, "it is in another order"
}
