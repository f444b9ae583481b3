package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

// block is a fenced block of a page.
type block struct {
	page, info, text string
	line             int
}

// language is the first word of what stands behind the fence; a reason not to run the block may follow: ```sh not-run: REASON
func (b block) language() string { return strings.Fields(b.info + " ")[0] }

func (b block) notRun() (reason string, marked bool) {
	_, reason, marked = strings.Cut(b.info, " not-run:")
	return strings.TrimSpace(reason), marked
}

// blocksOf returns the blocks of a page, and the text between them.
func blocksOf(t *testing.T, page string) (blocks []block, prose string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	var now *block
	for i, line := range strings.Split(string(text), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && now == nil:
			now = &block{page: page, info: info, line: i + 1}
		case fence:
			blocks, now = append(blocks, *now), nil
		case now != nil:
			now.text += line + "\n"
		default:
			prose += line + "\n"
		}
	}
	if now != nil {
		t.Errorf("%s:%d: a fence is not closed", page, now.line)
	}
	return blocks, prose
}

func pages(t *testing.T) (found []string) {
	t.Helper()
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/adr/*.md"} {
		paths, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, path := range paths {
			page, _ := filepath.Rel("../..", path)
			found = append(found, page)
		}
	}
	return found
}

// elsewhere says which test runs the blocks of a page in a language that this one does not.
var elsewhere = map[string]string{
	"docs/getting-started.md sh":     "python/tests/pytorch/test_getting_started.py",
	"docs/getting-started.md python": "python/tests/pytorch/test_getting_started.py",
	"docs/getting-started.md text":   "python/tests/pytorch/test_getting_started.py",
	"docs/pytorch.md python":         "python/tests/pytorch/test_docs.py",
	"docs/importance.md sh":          "cmd/lcache/simulate_hits_test.go",
	"docs/importance.md python":      "python/tests/pytorch/test_importance_sampler.py",
	"docs/records.md sh":             "python/tests/pytorch/test_records_page.py",
	"docs/records.md python":         "python/tests/pytorch/test_records_page.py",
	"docs/sources.md sh":             "cmd/lcache/sources_test.go",
	"docs/sources.md python":         "cmd/lcache/sources_test.go",
	"docs/deploy.md sh":              "python/tests/release/test_deploy.py",
	"docs/deploy.md python":          "python/tests/release/test_deploy.py",
	"README.md diff":                 "python/tests/pytorch/test_docs.py",
}

// blocksNotRun is the number of blocks that are marked as not run. A new one must be counted here, so that none is an oversight.
const blocksNotRun = 16

// TestPages: each block of the pages is run, or marked with the reason why not.
func TestPages(t *testing.T) {
	testenv.AnyIO(t)
	notRun := 0
	var used []string
	for _, page := range pages(t) {
		if page == "docs/reference.md" {
			continue // made from the commands, whose examples TestExamples runs
		}
		blocks, prose := blocksOf(t, page)
		if shown := regexp.MustCompile(`(?m)^ {4}(\$ |lcache |python|pip |make |go |echo |sudo |sysctl |import ).*`).FindString(prose); shown != "" {
			t.Errorf("%s: %q stands outside of a fenced block: nothing would run it", page, strings.TrimSpace(shown))
		}
		for _, b := range blocks {
			if reason, marked := b.notRun(); marked {
				if notRun++; reason == "" {
					t.Errorf("%s:%d: say why this is not run: ```sh not-run: REASON", page, b.line)
				}
				continue
			}
			if test, ok := elsewhere[page+" "+b.language()]; ok {
				used = append(used, page+" "+b.language())
				if code, err := os.ReadFile(filepath.Join("../..", test)); err != nil || !strings.Contains(string(code), filepath.Base(page)) {
					t.Errorf("%s:%d: %s does not run it (%v)", page, b.line, test, err)
				}
				continue
			}
			switch b.language() {
			case "sh", "python":
				t.Run(strings.ReplaceAll(page, "/", "-"), func(t *testing.T) {
					t.Parallel()
					runBlock(t, b)
				})
			case "json":
				if !json.Valid([]byte(b.text)) {
					t.Errorf("%s:%d: not JSON", page, b.line)
				}
			case "text":
			default:
				t.Errorf("%s:%d: a block of %q: mark it as sh, python, json or text", page, b.line, b.info)
			}
		}
	}
	if notRun != blocksNotRun {
		t.Errorf("%d blocks are marked as not run, want %d: see blocksNotRun", notRun, blocksNotRun)
	}
	for key := range elsewhere {
		if !slices.Contains(used, key) {
			t.Errorf("block %s does not exist", key)
		}
	}
}

func runBlock(t *testing.T, b block) {
	s := newStage(t)
	if b.language() == "python" {
		writeFile(t, filepath.Join(filepath.Dir(s.root), "work", "block.py"), b.text)
		s.run("lcache run --quiet --source /data/train --recipe torch.distributed_sampler --batch-size 32 --epochs 2 -- python block.py")
		return
	}
	// A free port, a group of this machine, and an address that needs no lookup.
	names := strings.NewReplacer("--metrics :9400", "--metrics 127.0.0.1:0", "--socket-group ml", "--socket-group "+otherGroup(t), "--cluster node1", "--cluster 127.0.0.1")
	for _, line := range commandLines(b.text) {
		s.run(names.Replace(line))
	}
}

// otherGroup is a group that this process may give a socket to.
func otherGroup(t *testing.T) string {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if me.Gid == "0" {
		return "1"
	}
	return me.Gid
}

// TestPicture: the pictures of the pages are what their scripts make.
func TestPicture(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	scripts, err := filepath.Glob("../../docs/img/*.py")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		made, err := exec.Command(python, script).Output()
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		picture := strings.TrimSuffix(script, ".py") + ".svg"
		if kept, err := os.ReadFile(picture); err != nil || !bytes.Equal(kept, made) {
			name := strings.TrimSuffix(filepath.Base(script), ".py")
			t.Errorf("docs/img/%s.svg is not what its script makes (%v): python3 docs/img/%s.py > docs/img/%s.svg", name, err, name, name)
		}
	}
	pictures, err := filepath.Glob("../../docs/img/*.svg")
	drawn := 2 // simulation.svg and importance.svg, by the commands that docs/planning.md and docs/importance.md show
	if err != nil || len(pictures) != len(scripts)+drawn {
		t.Errorf("%d pictures and %d scripts, want one script for each but %d (%v)", len(pictures), len(scripts), drawn, err)
	}
}
