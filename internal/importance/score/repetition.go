package score

// Repetition limits SHADE's rep from epoch to epoch (SHADE §4.2.1). The limit is 1 while no accuracy was reported,
// and for one epoch after accuracy has not risen over three epochs.
type Repetition struct {
	accuracy []float64 // of the last four epochs
}

// EndEpoch adds an epoch's accuracy, which is nil if it was not reported.
func (r *Repetition) EndEpoch(accuracy *float64) {
	if accuracy == nil {
		r.accuracy = nil
		return
	}
	if r.accuracy = append(r.accuracy, *accuracy); len(r.accuracy) > 4 {
		r.accuracy = r.accuracy[1:]
	}
}

// Allow returns how often hot samples are repeated in the next epoch, if the user asked for rep.
func (r *Repetition) Allow(rep float64) float64 {
	n := len(r.accuracy)
	if n == 0 || n == 4 && r.accuracy[3] <= r.accuracy[0] {
		return min(rep, 1)
	}
	return rep
}
