package status

// Event is something that happened to the server: its start, a device that was quarantined or works again, another layout, a job that came or went,
// another bottleneck, a source that fails or works again.
type Event struct {
	Time string `json:"time"` // RFC 3339, in UTC
	Kind string `json:"kind"` // started, device, layout, job, bottleneck or source
	Text string `json:"text"` // one sentence for people
}

// Waits is a histogram of the times from requests to their answers, in seconds.
type Waits struct {
	Count      int64     `json:"count"`
	SumSeconds float64   `json:"sum_seconds"`
	Bounds     []float64 `json:"bounds"`       // upper bounds in seconds
	Cumulative []int64   `json:"cumulative"`   // waits up to each of Bounds
	First      int       `json:"native_first"` // number of the first entry of Native
	Native     []int64   `json:"native"`       // bucket i has the waits over 2^((i-1)/8) and up to 2^(i/8) seconds
}
