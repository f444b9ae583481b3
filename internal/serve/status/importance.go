package status

// Importance is the part of Job for a job with importance-sampled orders. Requested is the sum of hits, substitutes and misses.
type Importance struct {
	Name         string `json:"name"`
	Method       string `json:"method"`
	Lag          string `json:"lag"`
	Policy       string `json:"policy"`
	State        string `json:"state"` // warmup, active or idle
	Epoch        int    `json:"epoch"`
	EpochLength  int    `json:"epoch_length"` // samples of Epoch
	WarmupEpochs int    `json:"warmup_epochs"`
	SSize        int    `json:"s_size"` // samples to evaluate again before each epoch

	Requested     int64 `json:"requested"` // samples delivered in the schedule's order
	HBytes        int64 `json:"h_bytes"`   // samples in the policy's memory
	HHits         int64 `json:"h_hits"`    // samples served from there
	LHits         int64 `json:"l_hits"`
	HomophilyHits int64 `json:"homophily_hits"`
	Substituted   int64 `json:"substituted"`
	LogHits       int64 `json:"log_hits"`
	SourceMisses  int64 `json:"source_misses"`

	// Substitutes and packages.
	Substitute      string  `json:"substitute"` // what may replace a sample: low, class or nothing
	LBytes          int64   `json:"l_bytes"`    // packages that Epoch loads at once, at most
	Ratio           float64 `json:"ratio"`
	SubstitutedMax  int64   `json:"substituted_max"`
	PackagesWritten int64   `json:"packages_written"`
	PackagesLoaded  int64   `json:"packages_loaded"`
	CleanedBytes    int64   `json:"cleaned_bytes"`

	UnseenShare   float64 `json:"unseen_share"` // share of all samples that Epoch leaves out
	DistinctShare float64 `json:"distinct_share"`
	MaxUses       int     `json:"max_uses"` // of one sample in Epoch

	Observations        int64   `json:"observations"` // samples
	ObservationsDropped int64   `json:"observations_dropped"`
	ObservedShare       float64 `json:"observed_share"` // of all samples, in the epoch before
	LastObservedEpoch   int     `json:"last_observed_epoch"`
	Undelivered         int64   `json:"undelivered"` // samples observed before they were delivered
	ReevaluationsMissed int64   `json:"reevaluations_missed"`
	Refused             Refused `json:"refused"`
}

// Refused counts samples whose observations were ignored; Shape counts whole observations.
type Refused struct {
	Unknown   int64 `json:"unknown"`
	NotFinite int64 `json:"notfinite"`
	Stale     int64 `json:"stale"`
	Shape     int64 `json:"shape"`
	Dimension int64 `json:"dimension"`
}
