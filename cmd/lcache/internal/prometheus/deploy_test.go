package prometheus_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

const deploy = "../../../../deploy"

// metricName finds names of metrics in queries.
var metricName = regexp.MustCompile(`\blcache_[a-z_]+`)

// checkNames fails for a metric that no server has.
func checkNames(t *testing.T, where, query string) {
	t.Helper()
	_, families := gather(t, collectorOf(full()))
	for _, name := range metricName.FindAllString(query, -1) {
		if families[name] == nil && families[strings.TrimSuffix(name, "_bucket")] == nil {
			t.Errorf("%s: no server has the metric %s", where, name)
		}
	}
}

// TestDashboard: Grafana's dashboard has at most 12 panels, each with a description, and asks only for metrics that exist. python/tests/e2e/test_monitor.py
// runs its queries.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "lcache.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title  string
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title != "lcache" || len(d.Panels) == 0 || len(d.Panels) > 12 {
		t.Errorf("%q has %d panels, want 1 to 12", d.Title, len(d.Panels))
	}
	for _, p := range d.Panels {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q has the description %q and %d queries", p.Title, p.Description, len(p.Targets))
		}
		for _, target := range p.Targets {
			if checkNames(t, p.Title, target.Expr); !strings.Contains(target.Expr, `name=~"$name"`) {
				t.Errorf("%s: the query is not for the chosen datasets: %s", p.Title, target.Expr)
			}
		}
	}
}

// TestAlerts: the alert rules ask only for metrics that exist, and promtool finds that they fire when they should.
func TestAlerts(t *testing.T) {
	rules := filepath.Join(deploy, "prometheus", "lcache.rules.yml")
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	checkNames(t, rules, string(text))
	if n := strings.Count(string(text), "- alert: "); n != 5 {
		t.Errorf("%d alerts, want 5", n)
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		testenv.NoTool(t, "prometheus")
	}
	if out, err := exec.Command(promtool, "test", "rules", filepath.Join(deploy, "prometheus", "lcache.rules.test.yml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
