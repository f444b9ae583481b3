package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lcache/internal/testenv"
	"lcache/internal/usage"
)

// hint is a text that users may see: of an error, a log line, a help text, a page.
type hint struct{ where, text string }

// unknown stands for the parts of a hint that are filled in at run time.
const unknown = "VALUE"

// hintsOfGo are all string literals of the module's own code, put together where + does that.
func hintsOfGo(t *testing.T) (hints []hint) {
	t.Helper()
	files := token.NewFileSet()
	walk(t, ".go", func(path string) {
		if strings.HasSuffix(path, "_test.go") || isTest(path) {
			return
		}
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, literal := textOf(e)
			if literal {
				hints = append(hints, hint{files.Position(e.Pos()).String(), text})
			}
			return !literal
		})
	})
	return hints
}

// textOf is the text of a literal, or of a sum that contains a literal.
func textOf(e ast.Expr) (text string, literal bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.ParenExpr:
		return textOf(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, l := textOf(e.X)
			right, r := textOf(e.Y)
			return left + right, l || r
		}
	}
	return unknown, false
}

func isTest(path string) bool {
	return strings.Contains(path, "/tests/") || strings.Contains(path, "/testdata/")
}

// walk visits the project's own files whose names end in some way.
func walk(t *testing.T, suffix string, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if err == nil && d.IsDir() && (strings.HasPrefix(name, ".") && len(name) > 2 || name == "build") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(name, suffix) {
			visit(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// hintsOfPython are the strings of the client, docstrings among them. A string that goes over several lines is one text for each.
func hintsOfPython(t *testing.T) (hints []hint) {
	t.Helper()
	walk(t, ".py", func(path string) {
		if isTest(path) {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			code, _, _ := strings.Cut(line, "  # ")
			hints = append(hints, hint{fmt.Sprintf("%s:%d", path, i+1), code})
		}
	})
	return hints
}

// hintsOfPages are the texts in back quotes on the pages.
func hintsOfPages(t *testing.T) (hints []hint) {
	for _, page := range pages(t) {
		_, prose := blocksOf(t, page)
		for _, m := range regexp.MustCompile("`(lcache [^`]*)`").FindAllStringSubmatch(prose, -1) {
			hints = append(hints, hint{page, m[1]})
		}
	}
	return hints
}

var (
	commandHint = regexp.MustCompile(`(?:^|[^\w./-])lcache ([a-z-][\w-]*)((?: --?[a-z][^\s]*(?: [^-\s][^\s]*)?| [^\s]+)*)`)
	flagHint    = regexp.MustCompile("(?:^|[\\s`(])--([a-z][a-z-]+)")
	valueLeft   = regexp.MustCompile(`%|[A-Z…{]`) // to be filled in
)

// othersFlags are flags of other programs that texts name.
var othersFlags = map[string]string{"nproc-per-node": "torchrun", "ulimit": "docker", "security-opt": "docker", "aug-repeats": "timm", "world": "demo_reader.py"}

// checkHint lists the errors in the commands that a text names: unknown commands and flags, flags without a value, and invalid values.
func checkHint(text string) (found int, wrong []string) {
	for _, at := range commandHint.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		root := newRootCommand(&globals{progress: "auto"})
		root.InitDefaultHelpCmd()
		cmd, _, err := root.Find([]string{name})
		if strings.HasPrefix(name, "-") {
			cmd, err, at[3] = root, nil, at[2]-1
		}
		if err != nil || cmd == root && !strings.HasPrefix(name, "-") {
			// The name of the program, in a sentence, unless the sentence says to run it or the word is nearly a command.
			before := strings.TrimSuffix(text[:at[2]], "lcache ")
			if strings.HasSuffix(before, "`") || strings.HasSuffix(before, "run ") || name != "server" && usage.Slip(name, commandNames(root)) != "" {
				wrong = append(wrong, "no command "+name)
			}
			continue
		}
		found++
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		wrong = append(wrong, checkFlags(cmd, strings.Fields(text[at[3]:]))...)
	}
	return found, wrong
}

func commandNames(root *cobra.Command) (names []string) {
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	return names
}

// checkFlags looks at the flags that directly follow a command's name, up to the first word that is none, or that ends a clause.
func checkFlags(cmd *cobra.Command, words []string) (wrong []string) {
	for i := 0; i < len(words); i++ {
		word := strings.TrimRight(words[i], ",;:.)`'\"")
		ends := word != words[i]
		name, long := strings.CutPrefix(word, "--")
		if !long || name == "" {
			break
		}
		name, value, given := strings.Cut(name, "=")
		flag := cmd.Flags().Lookup(name)
		if flag == nil {
			flag = cmd.InheritedFlags().Lookup(name)
		}
		switch {
		case flag == nil:
			wrong = append(wrong, fmt.Sprintf("%s has no flag --%s", cmd.CommandPath(), name))
		case flag.NoOptDefVal == "" && !given && (ends || i+1 == len(words)):
			wrong = append(wrong, fmt.Sprintf("%s --%s needs a value", cmd.CommandPath(), name))
		case flag.NoOptDefVal == "" && !given:
			i++
			value = strings.TrimRight(words[i], ",;:.)`'\"")
			ends, given = value != words[i], true
			fallthrough
		case given:
			if !valueLeft.MatchString(value) {
				if err := flag.Value.Set(value); err != nil {
					wrong = append(wrong, fmt.Sprintf("%s --%s %s: %v", cmd.CommandPath(), name, value, err))
				}
			}
		}
		if ends {
			break
		}
	}
	return wrong
}

// TestHints: a command that an error, a log line, a help text or a page names is there, and has the flags that are named.
func TestHints(t *testing.T) {
	testenv.AnyIO(t)
	for _, c := range []struct {
		name  string
		hints []hint
		least int // commands that are named there, so that a search that finds nothing is noticed
	}{{"Go", hintsOfGo(t), 40}, {"Python", hintsOfPython(t), 3}, {"pages", hintsOfPages(t), 40}} {
		total := 0
		for _, h := range c.hints {
			found, wrong := checkHint(h.text)
			total += found
			for _, w := range wrong {
				t.Errorf("%s: %s: %.200q", h.where, w, h.text)
			}
		}
		if total < c.least {
			t.Errorf("%s: only %d commands found, want %d at least", c.name, total, c.least)
		}
	}
}

// TestFlagsNamed: a flag that a Go text names is one of some command.
func TestFlagsNamed(t *testing.T) {
	testenv.WithoutRace(t)
	total := 0
	for _, h := range hintsOfGo(t) {
		for _, m := range flagHint.FindAllStringSubmatch(h.text, -1) {
			if total++; othersFlags[m[1]] != "" {
				continue
			}
			if !slices.ContainsFunc(everyCommand(), func(cmd *cobra.Command) bool {
				cmd.InitDefaultHelpFlag()
				cmd.InitDefaultVersionFlag()
				return cmd.Flags().Lookup(m[1]) != nil || cmd.PersistentFlags().Lookup(m[1]) != nil
			}) {
				t.Errorf("%s: no command has --%s: %.200q", h.where, m[1], h.text)
			}
		}
	}
	if total < 100 {
		t.Errorf("only %d flags found", total)
	}
}

func TestCheckHint(t *testing.T) {
	for text, want := range map[string]string{
		"run lcache ingest again":                             "",
		"see lcache serve --help, --socket-group":             "",
		"lcache ingest --cache %s --source …":                 "",
		"(lcache verify --cache VALUE)":                       "",
		"lcache --help lists the commands":                    "",
		"`lcache run --io uring -- python train.py --colour`": "",
		"an lcache server":                                    "",
		"what lcache made":                                    "",
		"say `lcache stauts`":                                 "no command stauts",
		"wait, lcache stauts says so":                         "no command stauts",
		"run lcache made":                                     "no command made",
		"run lcache ingets":                                   "no command ingets",
		"lcache serve --cach DIR":                             "lcache serve has no flag --cach",
		"lcache ingest --budget 1GB --exit-idle 3s":           "lcache ingest has no flag --exit-idle",
		"lcache doctor --save, and again":                     "lcache doctor --save needs a value",
		"lcache doctor --save":                                "lcache doctor --save needs a value",
		"lcache serve --io libaio":                            "lcache serve --io libaio: must be one of auto, uring, pread",
		"lcache --helpp":                                      "lcache has no flag --helpp",
	} {
		if _, wrong := checkHint(text); strings.Join(wrong, "; ") != want {
			t.Errorf("%q: got %q, want %q", text, wrong, want)
		}
	}
}
