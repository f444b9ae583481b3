package cache

// Progress is what a long run tells of itself.
type Progress struct {
	Stage string `json:"stage"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: unknown
	Unit  string `json:"unit"`  // "samples" or "bytes"
}

// A Default says what was chosen for the user, and why.
type Default struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}
