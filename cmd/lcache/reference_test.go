package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/reference.md again")

// TestReference: docs/reference.md equals the help texts of the commands.
func TestReference(t *testing.T) {
	const path = "../../docs/reference.md"
	var want bytes.Buffer
	writeReference(&want, newRootCommand(&globals{progress: "auto"}))
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("docs/reference.md differs from the help texts: run make docs\n%s", firstDifference(string(got), want.String()))
	}
}

// TestReferenceWhole: every command has what its page needs, and none begins a line that Markdown would take for something else.
func TestReferenceWhole(t *testing.T) {
	for _, cmd := range everyCommand()[1:] {
		if cmd.GroupID == "" && !cmd.Parent().HasParent() {
			t.Errorf("%s: in no group of the root's help", cmd.Name())
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: needs a short text, a long one and an example", cmd.Name())
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: its short text has a full stop", cmd.Name())
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: example %q is not indented", cmd.Name(), line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); name == "string" || f.Usage == "" {
				t.Errorf("%s --%s: describe it, and name its value in back quotes", cmd.Name(), f.Name)
			}
		})
	}
}

// helpDefault is the part of a flag's help that names its default.
var helpDefault = regexp.MustCompile(` \(default[^)]*\)$`)

// TestHelpIsShort: the help of a command or a flag is a phrase of at most 12 words, and its default one of at most 6.
func TestHelpIsShort(t *testing.T) {
	for _, cmd := range everyCommand() {
		if n := len(strings.Fields(cmd.Short)); n > 12 {
			t.Errorf("%s: %d words: %q", cmd.Name(), n, cmd.Short)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			preset := helpDefault.FindString(f.Usage)
			phrase := strings.TrimSuffix(f.Usage, preset)
			if words, presetWords := len(strings.Fields(phrase)), len(strings.Fields(preset)); words > 12 || presetWords > 7 {
				t.Errorf("%s --%s: %d words, and %d for the default: %q", cmd.Name(), f.Name, words, presetWords, f.Usage)
			}
			if strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s --%s: a phrase has no full stop: %q", cmd.Name(), f.Name, f.Usage)
			}
		})
	}
}

// TestHelp: every command's help has an example and the exit codes, and that of lcache itself begins with run.
func TestHelp(t *testing.T) {
	for _, cmd := range everyCommand() {
		var out, errs bytes.Buffer
		words := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		if code := run(words, &out, &errs); code != exitDone || errs.Len() > 0 {
			t.Errorf("%v: ended with %d: %s", words, code, errs.String())
		}
		for _, part := range []string{"\nUsage:\n  lcache", "\nExamples:\n  ", "\nExit codes:\n  "} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%v: no %q in\n%s", words, part, out.String())
			}
		}
	}
	var out, errs bytes.Buffer
	run([]string{"--help"}, &out, &errs)
	for _, part := range []string{"\nExamples:\n  lcache run ", "\n\nTrain:\n  run  "} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in\n%s", part, out.String())
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range w {
		if i >= len(g) || g[i] != w[i] {
			have := "the end"
			if i < len(g) {
				have = fmt.Sprintf("%q", g[i])
			}
			return fmt.Sprintf("line %d: got %s, want %q", i+1, have, w[i])
		}
	}
	return "it is longer"
}

// writeReference writes a page of all commands, from what --help shows.
func writeReference(w io.Writer, root *cobra.Command) {
	fmt.Fprint(w, `# Commands

This page is made from the commands themselves, by `+"`make docs`"+`. `+"`lcache COMMAND --help`"+` shows the same.

| | |
|---|---|
`)
	commands := slices.DeleteFunc(root.Commands(), func(cmd *cobra.Command) bool { return cmd.Hidden })
	for _, cmd := range commands {
		fmt.Fprintf(w, "| [%s](#lcache-%s) | %s |\n", cmd.Name(), cmd.Name(), cmd.Short)
	}
	fmt.Fprint(w, `
Results go to stdout; progress, logs and errors to stderr. A SIZE is like `+"`512MiB`"+` or `+"`4GB`"+`; a bare number is bytes. Every command has these flags:
`)
	fmt.Fprintln(w)
	fence(w, root.PersistentFlags().FlagUsages())
	fmt.Fprint(w, `
Every flag can also be given as `+"`LCACHE_<FLAG>`"+`: `+"`--batch-size`"+` is `+"`LCACHE_BATCH_SIZE`"+`. A flag on the command line wins; an empty variable counts as unset. Two variables have no
flag: `+"`LCACHE_DIRECT=0|1`"+` forces buffered or direct I/O, and `+"`LCACHE_BIN`"+` is the program that Python starts.

Exit codes, where a command does not say others:

`)
	fence(w, defaultExitCodes)
	var all []*cobra.Command
	for _, cmd := range commands {
		all = append(append(all, cmd), cmd.Commands()...)
	}
	for _, cmd := range all {
		fmt.Fprintf(w, "\n## %s\n\n%s\n\n", cmd.CommandPath(), paragraphs(cmd.Long))
		usage := cmd.UseLine()
		if !strings.HasPrefix(usage, "lcache") {
			usage = "lcache " + usage
		}
		fence(w, usage+"\n")
		if own := ownFlags(cmd); own.HasFlags() {
			fmt.Fprintln(w)
			fence(w, strings.TrimPrefix(flagUsages(cmd, own), "Flags:\n"))
		}
		fmt.Fprint(w, "\nExamples:\n\n")
		fence(w, unindented(cmd.Example)+"\n")
		if codes := cmd.Annotations[exitCodesNote]; codes != "" {
			fmt.Fprint(w, "\nExit codes:\n\n")
			fence(w, codes)
		}
	}
}

func fence(w io.Writer, text string) { fmt.Fprintf(w, "```\n%s```\n", text) }

// ownFlags are the flags that not every command has, in the order of --help.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" && cmd.Root().PersistentFlags().Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	return own
}

// paragraphs joins the lines of a help text, which are cut for a terminal.
func paragraphs(long string) string {
	var joined []string
	for _, p := range strings.Split(long, "\n\n") {
		joined = append(joined, strings.ReplaceAll(p, "\n", " "))
	}
	return strings.Join(joined, "\n\n")
}
