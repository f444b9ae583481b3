package importance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"lcache/sample"
)

// TestSeveral reads the stories of several jobs.
func TestSeveral(t *testing.T) {
	datadriven.RunTest(t, "testdata/several.txt", func(t *testing.T, d *datadriven.TestData) string {
		var jobs []JobRanks
		var waited []time.Duration
		n := 0
		for _, line := range strings.Split(d.Input, "\n") {
			var values []float64
			var wait time.Duration
			for _, word := range strings.Fields(line)[1:] {
				switch after, is := strings.CutPrefix(word, "waited="); {
				case is:
					wait = ok[time.Duration](t)(time.ParseDuration(after))
				case word != "unknown":
					values = append(values, ok[float64](t)(strconv.ParseFloat(word, 64)))
				}
			}
			var ranks []float32
			if values != nil {
				ranks = make([]float32, len(values))
				Ranks(values, ranks)
			}
			n = max(n, len(values))
			jobs, waited = append(jobs, JobRanks{Ranks: ranks}), append(waited, wait)
		}
		weights := JobWeights(waited)
		for k := range jobs {
			jobs[k].Weight = weights[k]
		}
		worth, kept := make([]float64, n), make([]sample.Index, n)
		Together(jobs, worth)
		for i := range kept {
			kept[i] = sample.Index(i)
		}
		slices.SortStableFunc(kept, func(a, b sample.Index) int {
			switch {
			case worth[a] > worth[b]:
				return -1
			case worth[a] < worth[b]:
				return 1
			}
			return 0
		})
		return fmt.Sprintf("weights %.2f, worth %.2f, kept first %v\n", weights, worth, kept)
	})
}
