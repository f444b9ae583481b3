// Package plan predicts the result of a cache for a job before anybody buys a disk: the time of an epoch with each
// layout, the bottleneck, the write volume, and the memory and disk space. It is pure: it measures nothing, opens
// nothing, and uses no clock.
//
// Facts describe job, node, disk (a DiskLine) and source. A Model computes plans for one set of facts: Epoch and Run
// for one policy, BestAdmission, SmallestCache, Auto. Beginning decides how a job starts over a log in another order.
// Reconsider chooses the layout again after an epoch was served. NextUse computes the possible gain of a node without
// peers.
//
// The formulas follow Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O" (NoPFS, SC '21),
// §3 and §4, with the layouts of lcache added; docs/planning.md explains them. An invalid number causes an error that
// names the fact; no function panics or runs forever because of it. All functions may be called concurrently.
package plan

// Sizes to start with.
const (
	defaultBlock = 1 << 20   // the unit of disk I/O, if memory and budget have room for it
	leastBlock   = 128 << 10 // minimum block size, whatever the memory
	blocksAhead  = 16        // reads or writes in flight, per device
	pageBytes    = 4096      // O_DIRECT rounds a read out to pages: it adds this much on average
	indexBytes   = 28.5      // of the MetaIndex, per sample
	peerTables   = 64        // tables of a machine of a cluster, per sample of the whole dataset
	demandBytes  = 8         // of two epochs' demands, per sample that a machine with the log layout keeps
	leastMisses  = 64 << 20  // minimum room for samples that are not admitted
	leastCredit  = 16e6      // minimum that each rank may hold, if memory allows it
)
