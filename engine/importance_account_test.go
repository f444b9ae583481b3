package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
)

// Importance states are counted when a job requests importance. If a state does not fit, the error names the --memory that is enough. A job that is over releases its memory.
func TestStatesOfImportanceHaveALimit(t *testing.T) {
	d := makeDataset(t, 20_000, func(*rand.Rand, int) int { return 100 })
	o, _ := ingested(t, d, ingest.Options{Job: samplerJob(4, 16, 1, false), Block: 128 << 10, Memory: 48 << 20, Budget: 512 << 20, Layout: "static"})
	ask := func(e *Engine, k int) error {
		number, err := e.Join(fmt.Sprintf("trial-%d", k))
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Importance(t.Context(), number, 0, "run", fmt.Appendf(nil, `{"method":"impact","name":"trial-%d","cache":0,"params":{"s_share":0}}`, k))
		if err != nil {
			e.Leave(number)
		}
		return err
	}
	e := open(t, o)
	before, taken := keptBytes(), 0
	var err error
	for ; err == nil && taken < 200; taken++ {
		err = ask(e, taken)
	}
	taken-- // the last one was refused
	kept := keptBytes() - before
	left := e.MemoryLimit() - int64(e.cache.Sizing.Memory) + leastStates
	closeEngine(t, e)
	var argument *deliver.ArgumentError
	if !errors.As(err, &argument) || taken < 3 {
		t.Fatalf("%d jobs have importance, the next one got %v", taken, err)
	}
	if kept > left {
		t.Errorf("the states of %d jobs take %d bytes of %d", taken, kept, left)
	}
	number := regexp.MustCompile(`--memory (\d+)`).FindStringSubmatch(err.Error())
	if number == nil {
		t.Fatalf("got %v, want the memory that is needed", err)
	}
	o.Memory, _ = strconv.ParseInt(number[1], 10, 64)
	e = open(t, o)
	defer closeEngine(t, e)
	for k := range taken + 1 {
		if err := ask(e, k); err != nil {
			t.Fatalf("with --memory %d, job %d: %v", o.Memory, k, err)
		}
	}
}

// Epoch ends and observations that arrive faster than they are processed share one limit.
func TestEpochEndsHaveALimit(t *testing.T) {
	d, o := small(t, samplerJob(4, 16, 1, false))
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, `{"method":"impact","cache":0,"batch_size":16,"lag":0,"params":{"s_share":0}}`)
	err := e.viewState(0, func(*state.State) { // the worker has to wait
		keepsLittle(t, 1_000_000, 12<<20, func(i int) {
			e.EndEpoch(0, i, score.Progress{Epoch: 1 << 20}, Unsent{Changed: true})
		})
	})
	if err != nil {
		t.Error(err)
	}
}
