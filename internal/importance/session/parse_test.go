package session

import (
	"errors"
	"strings"
	"testing"

	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
)

// TestParse: a text is refused if it can't be parsed, if only some ranks are on this machine, or if it differs from
// the recipe that the server replays. If the client does not know where ranks run, it is accepted.
func TestParse(t *testing.T) {
	pushed, err := schedule.New(schedule.Job{}, samples)
	if err != nil {
		t.Fatal(err)
	}
	defer pushed.Stop()
	replayed, err := schedule.New(schedule.Job{Recipe: "torch.distributed_sampler", Seed: "1", World: 16, BatchSize: 2}, samples)
	if err != nil {
		t.Fatal(err)
	}
	defer replayed.Stop()
	for _, c := range []struct {
		schedule *schedule.Schedule
		text     string
		here     bool
		refused  string // "": accepted
	}{
		{pushed, `"local_world_size":16`, true, ""},
		{pushed, `"local_world_size":20`, true, ""},
		{pushed, `"local_world_size":null`, false, ""},
		{pushed, `"seed":null`, false, ""},
		{pushed, `"local_world_size":8`, false, "job.importance needs all ranks on one machine: 16 in all, 8 here"},
		{pushed, `"local_world_size":15`, false, "job.importance needs all ranks on one machine: 16 in all, 15 here"},
		{pushed, `"world_size":1024,"local_world_size":1`, false, "job.importance needs all ranks on one machine: 1024 in all, 1 here"},
		{pushed, `"local_world_size":0`, false, "importance: local_world_size is 0: give how many ranks run on this machine, or null"},
		{pushed, `"local_world_size":-8`, false, "local_world_size is -8"},
		{pushed, `"local_world_size":"8"`, false, "local_world_size"},
		{pushed, `"local_world_size":8.5`, false, "local_world_size"},
		{pushed, `"local_world_size":1e300`, false, "local_world_size"},
		{pushed, `"cache":"much"`, false, "cache"},
		{replayed, `"local_world_size":16`, true, ""},
		{replayed, `"world_size":2`, false, "importance: world_size 2 and batch_size 2 differ from the server's recipe (16 and 2)"},
		{replayed, `"batch_size":4`, false, "importance: world_size 16 and batch_size 4 differ from the server's recipe (16 and 2)"},
	} {
		_, here, err := Parse([]byte(`{"method":"shade",`+c.text+`}`), state.Defaults{Seed: "5", BatchSize: 2, WorldSize: 16, Lag: "0"}, c.schedule)
		var refused *deliver.ArgumentError
		switch {
		case c.refused == "":
			if err != nil || here != c.here {
				t.Errorf("%s: all ranks are here: %v, %v", c.text, here, err)
			}
		case !errors.As(err, &refused) || !strings.Contains(err.Error(), c.refused) || strings.HasPrefix(c.refused, "job.") && err.Error() != c.refused:
			t.Errorf("%s: %v, want %s", c.text, err, c.refused)
		}
	}
}
