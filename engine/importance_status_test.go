package engine

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"lcache/internal/serve/status"
)

// TestKeysOfImportance: programs read the status by these keys.
func TestKeysOfImportance(t *testing.T) {
	text, err := json.Marshal(status.Job{Importance: &status.Importance{}, EpochsDone: []status.Epoch{{}}})
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Importance map[string]json.RawMessage
		EpochsDone []map[string]json.RawMessage `json:"epochs_done"`
	}
	var refused map[string]int64
	if err := json.Unmarshal(text, &job); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(job.Importance["refused"], &refused); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`cleaned_bytes distinct_share epoch epoch_length h_bytes h_hits homophily_hits l_bytes l_hits lag last_observed_epoch log_hits max_uses method name observations
		observations_dropped observed_share packages_loaded packages_written policy ratio reevaluations_missed refused requested s_size source_misses state substitute substituted substituted_max
		undelivered unseen_share warmup_epochs`)
	if got := slices.Sorted(maps.Keys(job.Importance)); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := slices.Sorted(maps.Keys(refused)); !slices.Equal(got, strings.Fields("dimension notfinite shape stale unknown")) {
		t.Errorf("refused: %v", got)
	}
	if _, ok := job.EpochsDone[0]["requested_digest"]; !ok {
		t.Errorf("epochs_done: %v", slices.Sorted(maps.Keys(job.EpochsDone[0])))
	}
	if text, err := json.Marshal(status.Job{}); err != nil || !strings.Contains(string(text), `"importance":null`) {
		t.Errorf("of a job without importance: %v, %s", err, text)
	}
}
