package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/scenario"
	"lcache/internal/testenv"
	"lcache/internal/usage"
)

// sampleReport has a policy of each kind: one that waits, one that refuses, one that reads a part, one that never fetches.
func sampleReport(t *testing.T) *scenario.Report {
	t.Helper()
	var s scenario.Results
	s.Name, s.Title, s.LowerBoundS = "ours", "our <data> & more", 100
	names := []string{"naive", "lbann_dynamic", "deepio_opportunistic", "perfect"}
	s.Policies = make([]scenario.Result, len(names))
	for i, name := range names {
		r := &s.Policies[i]
		if err := setPolicy(r, name); err != nil {
			t.Fatal(err)
		}
		r.Seconds, r.DatasetSeen = 100, 1
	}
	s.Policies[0].Seconds, s.Policies[0].FetchS.PFS = 149, 50
	s.Policies[1] = scenario.Result{Error: "too little memory"}
	s.Policies[2].InitS, s.Policies[2].DatasetSeen, s.Policies[2].FetchS.RAM, s.Policies[2].FetchS.Remote = 20, 0.31, 3, 1
	return &scenario.Report{Scenarios: []scenario.Results{s}}
}

func setPolicy(r *scenario.Result, name string) error {
	policies, err := scenario.ParsePolicies([]string{name})
	if err == nil {
		r.Policy = policies[0]
	}
	return err
}

// TestParts: the sections of a bar add up to the duration of the training.
func TestParts(t *testing.T) {
	want := []map[string]float64{{"source": 149}, {}, {"filling before training": 20, "own memory": 60, "other workers": 20}, {"nothing fetched": 100}}
	for i, r := range sampleReport(t).Scenarios[0].Policies {
		sum := 0.0
		for _, p := range parts {
			got := p.of(r)
			sum += got
			if math.Abs(got-want[i][p.name]) > 1e-9 {
				t.Errorf("bar %d: %s is %v, want %v", i, p.name, got, want[i][p.name])
			}
		}
		if math.Abs(sum-r.Seconds) > 1e-9 {
			t.Errorf("bar %d is %v high, the training takes %v", i, sum, r.Seconds)
		}
	}
}

// TestSVG: the picture is well-formed, and has its titles, labels and caption.
func TestSVG(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fig.svg")
	if err := Save(sampleReport(t), path); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for d := xml.NewDecoder(bytes.NewReader(body)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			words[strings.TrimSpace(string(text))] = true
		}
	}
	for _, want := range []string{"our <data> & more", "refuses", "reads 31 %", "lower bound", "other workers", "duration, minutes", caption[0], caption[1], "naive", "deepio opportunistic"} {
		if !words[want] {
			t.Errorf("the picture does not say %q: %v", want, words)
		}
	}
	if !strings.Contains(string(body), "stroke-dasharray") {
		t.Error("the lower bound is not dashed")
	}
}

func TestPNG(t *testing.T) {
	testenv.WithoutRace(t)
	r := sampleReport(t)
	for len(r.Scenarios) < 5 {
		r.Scenarios = append(r.Scenarios, r.Scenarios[0])
	}
	var body bytes.Buffer
	if err := Draw(r, ".png", &body); err != nil {
		t.Fatal(err)
	}
	image, err := png.Decode(&body)
	if err != nil || image.Bounds().Dx() < 1000 || image.Bounds().Dy() < 500 {
		t.Errorf("%v, %v", image.Bounds(), err)
	}
}

func TestRefusals(t *testing.T) {
	var wrong *usage.Error
	for _, path := range []string{"fig", "fig.pdf", ""} {
		if err := Save(sampleReport(t), path); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := Draw(&scenario.Report{}, ".svg", io.Discard); !errors.As(err, &wrong) {
		t.Errorf("no scenario: %v", err)
	}
	if err := Save(sampleReport(t), filepath.Join(t.TempDir(), "none", "fig.svg")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}
