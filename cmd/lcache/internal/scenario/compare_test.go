package scenario

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/simulate"
	"lcache/internal/testenv"
	"lcache/internal/usage"
)

func load(t *testing.T, name string) []Scenario {
	t.Helper()
	all, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRun has a result for each policy: a refusal is one, too.
func TestRun(t *testing.T) {
	var seen []float64
	r, err := Run(t.Context(), Options{Scenarios: load(t, "imagenet22k"), Method: simulate.Analytic, Progress: func(_ string, done, total float64) { seen = append(seen, done/total) }})
	if err != nil {
		t.Fatal(err)
	}
	results := r.Scenarios[0]
	if len(results.Policies) != len(simulate.Contenders()) || results.LowerBoundS < 20_000 || results.LowerBoundS > 40_000 {
		t.Fatalf("%d policies, lower bound %.0f s", len(results.Policies), results.LowerBoundS)
	}
	for _, p := range results.Policies {
		if lbann := strings.HasPrefix(string(p.Policy), "lbann"); p.Refuses() != lbann || !lbann && !(p.Ratio >= 0.999) {
			t.Errorf("%s: ratio %v, %s", p.Policy, p.Ratio, p.Error)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"seconds":`, `"lower_bound_s":`, `"ratio":`, `"init_s":`, `"stall_s":`, `"mb":{"pfs":`, `"dataset_seen":0.3`, `"first_epoch_s":`, `"steady_epoch_s":`, `"method":"analytic"`, `"error":"unsupported`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document lacks %s", want)
		}
	}
}

// TestScale: a job that is scaled down says nearly the same of the whole job.
func TestScale(t *testing.T) {
	testenv.WithoutRace(t)
	whole, err := Run(t.Context(), Options{Scenarios: load(t, "imagenet1k-tight"), Method: simulate.Sampled, Policies: []simulate.Contender{simulate.NoPFS, simulate.Naive, simulate.LocalityAware}})
	if err != nil {
		t.Fatal(err)
	}
	part, err := Run(t.Context(), Options{Scenarios: load(t, "imagenet1k-tight"), Method: simulate.Exact, Scale: 40, Policies: []simulate.Contender{simulate.NoPFS, simulate.Naive, simulate.LocalityAware}})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range part.Scenarios[0].Policies {
		want := whole.Scenarios[0].Policies[i]
		if math.Abs(p.Seconds-want.Seconds) > 0.03*want.Seconds || math.Abs(p.MB.PFS-want.MB.PFS) > 0.03*want.MB.PFS {
			t.Errorf("%s: %.0f s and %.0f MB from the source scaled down, %.0f s and %.0f MB whole", p.Policy, p.Seconds, p.MB.PFS, want.Seconds, want.MB.PFS)
		}
	}
}

func TestVary(t *testing.T) {
	all, err := Vary(load(t, "imagenet22k"), []string{"ram=32GB,64GB", "ssd=128GB,256GB,512GB"})
	if err != nil || len(all) != 6 {
		t.Fatalf("%d variants, %v", len(all), err)
	}
	if last := all[5]; last.Machine.Capacity != [simulate.Classes]float64{5000, 64_000, 512_000} || last.Name != "imagenet22k ram=64GB ssd=512GB" || all[0].Machine.Capacity[1] != 32_000 {
		t.Errorf("%+v", last)
	}
	for _, sweep := range []string{"ram", "ram=", "rma=5GB", "ram=5", "epochs=" + strings.Repeat("1,", 1000) + "1"} {
		var wrong *usage.Error
		if _, err := Vary(all, []string{sweep}); !errors.As(err, &wrong) {
			t.Errorf("%.20s: %v", sweep, err)
		}
	}
}

func TestParsePolicies(t *testing.T) {
	if all, err := ParsePolicies([]string{"naive", "all"}); err != nil || len(all) != len(simulate.Contenders()) {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := ParsePolicies([]string{"nofps"}); err == nil || !strings.Contains(err.Error(), "did you mean nopfs") {
		t.Errorf("a slip: %v", err)
	}
	if _, err := Run(t.Context(), Options{Scenarios: load(t, "mnist"), Scale: math.NaN()}); err == nil {
		t.Error("Run accepts NaN as the scale")
	}
	if _, err := Run(t.Context(), Options{Scenarios: load(t, "mnist"), Scale: 1e9}); err == nil || !strings.Contains(err.Error(), "mnist") {
		t.Errorf("a scale that leaves no sample: %v", err)
	}
}
