package cache

// Progress is the progress of a long run.
type Progress struct {
	Stage string `json:"stage"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: unknown
	Unit  string `json:"unit"`  // "samples" or "bytes"

	Samples, AllSamples int64 // in addition to bytes; 0, 0: not reported
}

// A Default is a value that lcache chose for the user, and its origin.
type Default struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}
