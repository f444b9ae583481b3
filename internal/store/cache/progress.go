package cache

// Progress is how far a long run has come.
type Progress struct {
	Stage string `json:"stage"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: unknown
	Unit  string `json:"unit"`  // "samples" or "bytes"

	Samples, AllSamples int64 // beside bytes; 0, 0: not told
}

// A Default is a value that lcache chose for the user, and its origin.
type Default struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}
