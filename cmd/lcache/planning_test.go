package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

// TestPlanningExamples: each plan of docs/planning.md prints the text that the page shows below it.
func TestPlanningExamples(t *testing.T) {
	blocks, _ := blocksOf(t, "docs/planning.md")
	seen := 0
	for i, b := range blocks {
		command := strings.Fields(strings.ReplaceAll(b.text, "\\\n", " "))
		if b.language() != "sh" || len(command) < 2 || command[1] != "plan" {
			continue
		}
		seen++
		if i+1 == len(blocks) || blocks[i+1].language() != "text" {
			t.Errorf("%s:%d: no output below the command", b.page, b.line)
			continue
		}
		var stdout, stderr bytes.Buffer
		if code := run(command[1:], &stdout, &stderr); code != exitDone {
			t.Errorf("%s:%d: exit code %d: %s", b.page, b.line, code, &stderr)
		}
		if got, want := stdout.String(), blocks[i+1].text; got != want {
			t.Errorf("%s:%d: the page shows\n%s\nthe command prints\n%s", b.page, b.line, want, got)
		}
	}
	if seen != 3 {
		t.Errorf("docs/planning.md has %d plans, want the three worked examples", seen)
	}
}

// TestPlanningScenario: the page shows the example of package scenario.
func TestPlanningScenario(t *testing.T) {
	example, err := os.ReadFile("internal/scenario/testdata/example.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/planning.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, append([]byte("```text\n"), example...)) {
		t.Error("docs/planning.md does not show cmd/lcache/internal/scenario/testdata/example.txt")
	}
}

// TestPlanningPicture: the picture of the page is what its command draws.
func TestPlanningPicture(t *testing.T) {
	testenv.WithoutRace(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the picture was drawn on amd64: the last digits of floats differ elsewhere")
	}
	blocks, _ := blocksOf(t, "docs/planning.md")
	for _, b := range blocks {
		command := strings.Fields(strings.ReplaceAll(b.text, "\\\n", " "))
		if b.language() != "sh" || len(command) < 2 || command[1] != "simulate" {
			continue
		}
		drawn := filepath.Join(t.TempDir(), "simulation.svg")
		var stdout, stderr bytes.Buffer
		if code := run(append(command[1:], "--plot", drawn), &stdout, &stderr); code != exitDone {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		got, err := os.ReadFile(drawn)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("../../docs/img/simulation.svg")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Error("docs/img/simulation.svg differs from the picture that the command of docs/planning.md draws: run it in docs/img, and look at the picture")
		}
		return
	}
	t.Error("docs/planning.md has no simulation")
}

// TestPlanMissing: each missing fact has a line with the flags that give it, and the error counts them.
func TestPlanMissing(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(strings.Fields("plan --facts off --samples 9 --bytes 1MB --epochs 1"), &stdout, &stderr)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if code != exitUsage || stdout.Len() > 0 || len(lines) != 6 {
		t.Fatalf("exit code %d, %q, %q", code, &stdout, &stderr)
	}
	for i, want := range []string{"batch-size --batch-size", "budget --budget", "source-bw --source-bw", "consumer --consumer", "disk --read-bw"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, "missing "+want) {
			t.Errorf("line %d: %q, want %q", i+1, lines[i], want)
		}
	}
	if !strings.HasPrefix(lines[5], "lcache plan: 5 facts are missing") {
		t.Errorf("the error is %q", lines[5])
	}
}

// TestPlanCommand: a plan ends with the command that follows its advice, unless no cache is needed.
func TestPlanCommand(t *testing.T) {
	facts := "plan --facts off --samples 1281167 --bytes 138GB --batch-size 256 --epochs 90 --budget 150GB --combined-bw 500MB/s --combined-iops 3000 --source-bw 150MB/s --consumer "
	for consumer, want := range map[string]string{
		"5000/s": "next: lcache run --source SRC --cache DIR --layout static --budget 95GB -- python train.py",
		"100/s":  "  The next bottleneck is the source: 920 s.",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(facts+consumer), &stdout, &stderr); code != exitDone {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
		if last := lines[len(lines)-1]; last != want {
			t.Errorf("--consumer %s: the last line is %q, want %q", consumer, last, want)
		}
	}
}

// TestPlanErrors: one line and the exit code of a wrong command line.
func TestPlanErrors(t *testing.T) {
	for _, tc := range []struct {
		args, want string
		code       int
	}{
		{"plan --facts off --budget lots", "lcache plan: budget \"lots\": write a size", exitUsage},
		{"plan --facts off --what-if budgte=5GB", "did you mean budget?", exitUsage},
		{"plan --facts /nowhere/machine.json", "/nowhere/machine.json: no such file", exitError},
		{"plan --facts off --samples 1e18 --bytes 1MB --batch-size 1 --epochs 1 --budget 1GB --memory 1GB --combined-bw 1GB --combined-iops 1 --source-bw 1GB --consumer 1/s", "samples is 1e+18", exitUsage},
		{"plan --facts off --time 1ms", "--time 1ms: give at least 1s", exitUsage},
		{"simulate --scenario mnits", `did you mean "mnist"?`, exitUsage},
		{"simulate --policy nofps", "did you mean nopfs?", exitUsage},
		{"simulate --scenario mnist --epochs many", `epochs: "many" is not a number`, exitUsage},
		{"simulate --scenario mnist --plot fig.pdf", "ends with .svg or .png", exitUsage},
		{"simulate --scenario mnist --sweep ram", "write key=value,value", exitUsage},
		{"simulate --scenario mnist --scale 0.5", "scale 0.5", exitUsage},
		{"simulate --scenario imagenet22k --policy nopfs --method exact --memory 1MB", "may take 0.001 GB", exitError},
		{"simulate --method guess", "must be one of", exitUsage},
		{"simulate --importance ar1 --scenario mnist", "--scenario cannot be combined with --importance", exitUsage},
		{"simulate --importance ar1 --policy nextuse", "did you mean next-use?", exitUsage},
		{"simulate --importance ar1 --epochs 1", "at least 2 epochs", exitUsage},
		{"simulate --importance ar1 --batch-size x", "--batch-size x", exitUsage},
		{"simulate --importance ar1 --plot fig.pdf", "ends with .svg or .png", exitUsage},
		{"simulate --importance losses.f32", "losses.f32: no such file", exitError},
		{"simulate --samples 9", "--samples requires --importance", exitUsage},
	} {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(tc.args), &stdout, &stderr)
		if code != tc.code || !strings.Contains(stderr.String(), tc.want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("lcache %s: exit code %d, want %d; %q, want %q", tc.args, code, tc.code, &stderr, tc.want)
		}
	}
}
