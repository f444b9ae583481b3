package launch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReadHeadspace(t *testing.T) {
	train := Headspace{Job: "train", Best: 400, Real: 100}
	for _, c := range []struct {
		name, notes string
		want        []Headspace
	}{
		{"nothing", "", nil},
		{"one epoch", `{"job": "train", "rank": 0, "real": [50, 0.5], "best": [50, 0.125]}` + "\n", []Headspace{{"train", 400, 100, true}}},
		{"the first of several is left out", `{"job": "train", "rank": 0, "real": [50, 9], "best": [50, 9]}
{"job": "train", "rank": 0, "real": [50, 0.25], "best": [50, 0.125]}
{"job": "train", "rank": 0, "real": [50, 0.75], "best": [50, 0.125]}
`, []Headspace{train}},
		{"the slowest rank counts", `{"job": "train", "rank": 0, "real": [50, 0.5], "best": [50, 0.1]}
{"job": "train", "rank": 1, "real": [50, 0.4], "best": [50, 0.125]}
`, []Headspace{{"train", 400, 100, true}}},
		{"the longest loader first", `{"job": "check", "rank": 0, "real": [5, 0.5], "best": [0, 0]}
{"job": "train", "rank": 0, "real": [50, 0.5], "best": [50, 0.125]}
`, []Headspace{{"train", 400, 100, true}, {"check", 0, 10, true}}},
		{"half a line", `{"job": null, "rank": 0, "real": [50, 0.5], "best": [50, 0.125]}` + "\n" + `{"job": "tr`, []Headspace{{"", 400, 100, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "notes")
			if err := os.WriteFile(path, []byte(c.notes), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readHeadspace(path)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v (%v), want %v", got, err, c.want)
			}
		})
	}
	if got, err := readHeadspace(filepath.Join(t.TempDir(), "none")); got != nil || err != nil {
		t.Errorf("without a file: %v (%v)", got, err)
	}
}
