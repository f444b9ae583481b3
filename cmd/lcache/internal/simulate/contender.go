package simulate

import "fmt"

// Contender is a policy as the simulator knows it: those that NoPFS §6 compares, and those of lcache.
type Contender string

// The contenders. Those with "cold" have nothing cached in the first epoch.
const (
	Perfect             Contender = "perfect"              // nobody waits for data
	Naive               Contender = "naive"                // read when asked for
	Staging             Contender = "staging"              // prefetched from the source (double buffering, tf.data)
	DeepIOOrdered       Contender = "deepio_ordered"       // memory of all workers; what does not fit is read when asked for
	DeepIOOpportunistic Contender = "deepio_opportunistic" // the same, but only what is held is ever read
	ParallelStaging     Contender = "parallel_staging"     // SSDs filled before the training; only those are read
	LBANNDynamic        Contender = "lbann_dynamic"        // memory of all workers, filled in the first epoch (cold)
	LBANNPreload        Contender = "lbann_preload"        // the same, filled before the training
	LocalityAware       Contender = "locality_aware"       // SSDs; a global batch is dealt so that workers read their own
	NoPFS               Contender = "nopfs"                // what a worker reads most often, in memory, then on the SSD (cold)
	StaticAlone         Contender = "static"               // lcache without peers: one fixed share on each SSD (cold)
	StaticPeers         Contender = "peer_static"          // lcache: each sample has one home, on an SSD (cold)
	LogPeers            Contender = "peer_log"             // the same, reordered: the SSD writes what it reads (cold)
)

// Contenders are all policies of the simulator, in the order of a picture.
func Contenders() []Contender {
	return []Contender{Naive, Staging, DeepIOOrdered, DeepIOOpportunistic, ParallelStaging, LBANNDynamic, LBANNPreload, LocalityAware, NoPFS,
		StaticAlone, StaticPeers, LogPeers, Perfect}
}

func (c Contender) check() error {
	for _, known := range Contenders() {
		if c == known {
			return nil
		}
	}
	return fmt.Errorf("policy %q is not known", c)
}

// cold says that nothing is cached in the first epoch.
func (c Contender) cold() bool {
	switch c {
	case LBANNDynamic, NoPFS, StaticAlone, StaticPeers, LogPeers:
		return true
	}
	return false
}

// shards says that worker i holds the i-th part of the dataset, and in which class.
func (c Contender) shards() (class int) {
	switch c {
	case DeepIOOrdered, DeepIOOpportunistic, LBANNPreload:
		return 1
	case LocalityAware, ParallelStaging:
		return 2
	}
	return 0
}

// uncached is where samples come from that nobody holds.
func (c Contender) uncached() place {
	if c == Naive || c == DeepIOOrdered {
		return onDemand
	}
	return fromPFS
}

// diskPasses is how often the bytes of a held sample go over the SSD of its home, for those that say so.
func (c Contender) diskPasses() float64 {
	switch c {
	case StaticAlone, StaticPeers:
		return 1
	case LogPeers:
		return 2
	}
	return 0
}

// wholeInRAM says that a policy needs the dataset to fit into all memories together.
func (c Contender) wholeInRAM() bool { return c == LBANNDynamic || c == LBANNPreload }
