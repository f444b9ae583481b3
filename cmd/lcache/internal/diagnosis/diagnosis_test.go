package diagnosis

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }

// TestLines: the last lines are kept, within both limits, and the others are counted.
func TestLines(t *testing.T) {
	var l Lines
	logger := slog.New(slog.NewJSONHandler(&l, nil))
	for i := range mostLines + 7 {
		logger.Info("message", "n", i)
	}
	lines, dropped := l.Last()
	if len(lines) != mostLines || dropped != 7 {
		t.Fatalf("%d lines, %d dropped", len(lines), dropped)
	}
	var first struct{ N int }
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.N != 7 {
		t.Errorf("the first line is %s: %v", lines[0], err)
	}
	logger.Info(strings.Repeat("x", mostLineBytes))
	if _, after := l.Last(); after != dropped+1 {
		t.Errorf("a huge line: %d dropped", after)
	}
	for range 200 {
		logger.Info(strings.Repeat("x", mostLineBytes-200))
	}
	lines, _ = l.Last()
	sum := 0
	for _, line := range lines {
		sum += len(line)
	}
	if sum > mostBytes || sum < mostBytes-mostLineBytes {
		t.Errorf("%d bytes are kept", sum)
	}
}

// TestCollect: the diagnosis has stacks, a heap profile, the arguments without another program's, and no variable that may be a secret.
func TestCollect(t *testing.T) {
	p := Process{Args: []string{"lcache", "run", "--source", "d", "--", "python", "x.py", "--key=zqsecret"}, Command: []string{"python", "x.py", "--key=zqsecret"},
		Environ: []string{"HOME=/zqhome", "LCACHE_MEMORY=2GB", "LCACHE_METRICS_TOKEN=zqtoken", "LCACHE_CLUSTER_KEY=/zqkey", "AWS_SECRET_ACCESS_KEY=zqaws"}, Log: &Lines{}}
	d := p.Collect()
	if fmt.Sprint(d.Args) != "[lcache run --source d --]" || d.CommandArgs != 3 {
		t.Errorf("arguments %q and %d", d.Args, d.CommandArgs)
	}
	if fmt.Sprint(d.Environment) != "map[LCACHE_MEMORY:2GB]" || !slices.Equal(d.Secrets, []string{"LCACHE_METRICS_TOKEN", "LCACHE_CLUSTER_KEY"}) {
		t.Errorf("environment %v, without %v", d.Environment, d.Secrets)
	}
	if !strings.Contains(d.Goroutines, "TestCollect") || d.GoroutinesCut || len(d.Heap) == 0 || d.HeapError != "" {
		t.Errorf("stacks %.300s, heap of %d bytes, %s", d.Goroutines, len(d.Heap), d.HeapError)
	}
	d.Heap = nil // its base64 may have any letters
	if doc, err := json.Marshal(d); err != nil || strings.Contains(string(doc), "zq") {
		t.Errorf("%v: %.2000s", err, doc)
	}
	p.Command = []string{"something", "else"} // not at the end of the arguments: then nothing after the verb is believed to be ours
	if d := p.Collect(); fmt.Sprint(d.Args) != "[lcache run]" || d.CommandArgs != 6 {
		t.Errorf("arguments %q and %d", d.Args, d.CommandArgs)
	}
}

// TestManyStacks: the stacks are cut at a limit.
func TestManyStacks(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	for range 100 {
		go func() { <-stop }()
	}
	const most = 5000
	text, cut := stacks(most)
	if !cut || len(text) != most {
		t.Errorf("%d bytes, cut %v", len(text), cut)
	}
}
