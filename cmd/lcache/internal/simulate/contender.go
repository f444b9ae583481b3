package simulate

import "fmt"

// Contender is a policy of the simulator: one that NoPFS §6 compares, or one of lcache.
type Contender string

// The contenders. Those with "cold" have nothing cached in the first epoch.
const (
	Perfect             Contender = "perfect"              // no worker waits for data
	Naive               Contender = "naive"                // read when requested
	Staging             Contender = "staging"              // prefetched from the source (double buffering, tf.data)
	DeepIOOrdered       Contender = "deepio_ordered"       // memory of all workers; the rest is read when requested
	DeepIOOpportunistic Contender = "deepio_opportunistic" // the same, but only held samples are ever read
	ParallelStaging     Contender = "parallel_staging"     // SSDs filled before the training; only those are read
	LBANNDynamic        Contender = "lbann_dynamic"        // memory of all workers, filled in the first epoch (cold)
	LBANNPreload        Contender = "lbann_preload"        // the same, filled before the training
	LocalityAware       Contender = "locality_aware"       // SSDs; global batches are dealt so that workers read their own samples
	NoPFS               Contender = "nopfs"                // a worker's most-read samples in memory, then on the SSD (cold)
	StaticAlone         Contender = "static"               // lcache without peers: one fixed share on each SSD (cold)
	LogAlone            Contender = "log"                  // the same, reordered: the SSD writes as many bytes as it reads (cold)
	StaticPeers         Contender = "peer_static"          // lcache: each sample has one home, on an SSD (cold)
	LogPeers            Contender = "peer_log"             // the same, reordered (cold)
)

// Contenders are all policies of the simulator, in the order of a picture.
func Contenders() []Contender {
	return []Contender{Naive, Staging, DeepIOOrdered, DeepIOOpportunistic, ParallelStaging, LBANNDynamic, LBANNPreload, LocalityAware, NoPFS,
		StaticAlone, LogAlone, StaticPeers, LogPeers, Perfect}
}

func (c Contender) check() error {
	for _, known := range Contenders() {
		if c == known {
			return nil
		}
	}
	return fmt.Errorf("policy %q is not known", c)
}

// cold reports whether nothing is cached in the first epoch.
func (c Contender) cold() bool {
	switch c {
	case LBANNDynamic, NoPFS, StaticAlone, LogAlone, StaticPeers, LogPeers:
		return true
	}
	return false
}

// shards returns the storage class in which worker i holds the i-th part of the dataset; 0: the policy holds no such parts.
func (c Contender) shards() (class int) {
	switch c {
	case DeepIOOrdered, DeepIOOpportunistic, LBANNPreload:
		return 1
	case LocalityAware, ParallelStaging:
		return 2
	}
	return 0
}

// uncached is where samples come from that no worker holds.
func (c Contender) uncached() place {
	if c == Naive || c == DeepIOOrdered {
		return onDemand
	}
	return fromPFS
}

// diskPasses is how often the SSD of its home transfers a held sample in an epoch: once if it is read, twice if it is also written;
// 0 for policies without this limit.
func (c Contender) diskPasses() float64 {
	switch c {
	case StaticAlone, StaticPeers:
		return 1
	case LogAlone, LogPeers:
		return 2
	}
	return 0
}

// wholeInRAM reports whether the dataset must fit into the memory of all workers together.
func (c Contender) wholeInRAM() bool { return c == LBANNDynamic || c == LBANNPreload }

// alone reports whether each worker of lcache has only its own SSD, and reads no other worker's.
func (c Contender) alone() bool { return c == StaticAlone || c == LogAlone }
