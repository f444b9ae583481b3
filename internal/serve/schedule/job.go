package schedule

import (
	"lcache/internal/usage"
	"lcache/shuffle"
)

// A Job describes the orders of a training run. Without a Recipe clients push the orders, and the source is stored in canonical order.
type Job struct {
	Recipe    string            `json:"recipe"`
	Seed      string            `json:"seed"`
	Epochs    int               `json:"epochs"` // 0: unknown
	BatchSize int               `json:"batch_size"`
	World     int               `json:"world"`
	Ranks     []int             `json:"ranks"` // nil: all
	DropLast  bool              `json:"drop_last"`
	Params    map[string]string `json:"params,omitempty"`
}

// Check returns an error for a job that no dataset can have. It runs before the listing, which may take minutes.
func (j Job) Check() error {
	if j.Epochs < 0 {
		return usage.Errorf("--epochs %d: give 0 (unknown) or more", j.Epochs)
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"batch-size", j.BatchSize}, {"world-size", j.World}} {
		if n.value < 0 {
			return usage.Errorf("--%s %d: give 1 or more, or leave it out", n.flag, n.value)
		}
	}
	if j.Recipe == "" {
		return nil
	}
	if err := shuffle.Check(j.spec(0)); err != nil {
		return err
	}
	if j.BatchSize == 0 {
		return usage.Errorf("recipe %s needs a batch size too: add --batch-size B, the samples in one batch of one rank, as your DataLoader has it", j.Recipe)
	}
	return nil
}

// spec returns the recipe and its parameters, over n samples.
func (j Job) spec(n int) shuffle.Spec {
	return shuffle.Spec{Recipe: j.Recipe, Samples: n, Seed: j.Seed, BatchSize: j.BatchSize, World: j.World, DropLast: j.DropLast, Params: j.Params}
}
