// Package plan says what a cache would do for a job before anybody buys a disk: how long an epoch takes with each layout,
// what bounds it, what it writes to the drives, how much memory and space it needs. It is pure: facts go in, numbers come
// out; it measures nothing, opens nothing, and knows no clock.
//
// Facts are what is known of job, node, disk (a DiskLine) and source. A Model answers for one set of facts: Epoch and Run
// for one policy, BestAdmission, SmallestCache, Auto. Beginning decides what a job does over a log in another order, and
// Reconsider chooses the layout again by an epoch that was served. NextUse says what a node without peers can gain.
//
// The formulas follow Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O" (NoPFS, SC '21), §3
// and §4, and are extended by the layouts of lcache; docs/planning.md explains them. Numbers that make no sense are
// refused by an error that names the fact; no function panics or runs for ever on one. Everything here may be called
// concurrently.
package plan

// Sizes that a cache starts from.
const (
	defaultBlock = 1 << 20   // the unit of disk I/O, if memory and budget leave it
	leastBlock   = 128 << 10 // no block is smaller, whatever the memory
	blocksAhead  = 16        // reads or writes in flight, per device
	pageBytes    = 4096      // O_DIRECT rounds a read out to pages: this much more, on average
	indexBytes   = 28.5      // of the MetaIndex, per sample
	leastMisses  = 64 << 20  // the least room for samples that are not admitted
	leastCredit  = 16e6      // what every rank may at least hold, if memory allows
)
