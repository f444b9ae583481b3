package importance

import "lcache/internal/importance/score"

// Stats are the counters of one job's importance. They never decrease.
type Stats struct {
	HighHits      uint64
	LowHits       uint64
	NodeHits      uint64 // requests that nodes served as themselves
	Substituted   uint64
	LogHits       uint64
	SourceMisses  uint64
	Observations  uint64
	Refused       score.Report
	MaxSubstitute int // maximum number of uses of one sample as a substitute in an epoch
}

// Requested returns the number of requested samples.
func (s *Stats) Requested() uint64 {
	return s.HighHits + s.LowHits + s.NodeHits + s.Substituted + s.LogHits + s.SourceMisses
}

// Count adds a report.
func (s *Stats) Count(r score.Report) {
	s.Observations += uint64(r.Observed)
	s.Refused = s.Refused.Add(score.Report{Unknown: r.Unknown, NotFinite: r.NotFinite, Stale: r.Stale, Shape: r.Shape})
}
