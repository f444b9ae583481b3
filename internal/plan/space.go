package plan

// Space is the result of a budget of disk space.
type Space struct {
	PaddedBytes float64 `json:"padded_bytes"` // S_p: size of the whole dataset in the arena
	SlackBytes  float64 `json:"slack_bytes"`  // additional space that the arena needs to reorder samples
	Hit         float64 `json:"hit"`          // c_D: the share of the dataset that fits
	Copies      float64 `json:"-"`            // how often the padded bytes fit; Hit is that, and at most 1
}

// Padded returns the bytes of a dataset in the arena: samples are aligned to 64 bytes, small ones to 8.
func Padded(datasetBytes, samples float64) float64 {
	align := 64.0
	if datasetBytes/samples < 4096 {
		align = 8
	}
	return datasetBytes + samples*(align-1)/2
}

// NewSpace returns how much of the padded bytes a budget holds, with segments and blocks of the given sizes.
func NewSpace(padded, budget float64, z Sizes) Space {
	least, turn := z.slack()
	sp := Space{PaddedBytes: padded, SlackBytes: max(least, min(turn, budget/100))}
	sp.Copies = max(0, (budget-sp.SlackBytes)/padded)
	sp.Hit = min(sp.Copies, 1)
	return sp
}

// FullBudget returns the budget that holds all padded bytes, with the sizes of a log that keeps all samples.
func FullBudget(padded float64, z Sizes) float64 {
	least, turn := z.slack()
	return padded + max(least, min(turn, padded/99))
}

// slack returns the space that both Logfiles need while samples move between them: at most 1 % of the budget, and at least 32 blocks.
func (z Sizes) slack() (least, turn float64) {
	least = 32 * z.BlockBytes
	return least, 2*max(z.SegmentBytes, z.Segments*z.BlockBytes) + least
}
