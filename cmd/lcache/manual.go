package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManualCommand returns a command for packagers. It is hidden, because --help and docs/reference.md say the same as the pages.
func newManualCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "manual DIR",
		Short: "Write the manual pages into a directory",
		Long: "manual writes one manual page for each command into DIR: lcache.1, lcache-run.1 and so on. It creates DIR. Packages of\n" +
			"lcache contain these pages already.",
		Example: "  lcache manual man1",
		Hidden:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("takes one argument, the directory for the pages")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := writeManual(args[0]); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return nil
		},
	}
}

// writeManual writes the manual pages of all commands that are not hidden.
func writeManual(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := newRootCommand(&globals{progress: "auto"})
	root.InitDefaultHelpFlag()
	pages := []*cobra.Command{root}
	for len(pages) > 0 {
		cmd := pages[0]
		pages = append(pages[1:], shown(cmd)...)
		if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(manualPage(cmd)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// shown returns the commands below cmd that have a page.
func shown(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return c.Hidden || c.Name() == "help" })
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manualPage returns the page of a command in roff, the language of man. Its date is that of the program's commit, so that two builds of a commit are equal.
func manualPage(cmd *cobra.Command) string {
	from, b := builtFrom(), &strings.Builder{}
	macro := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	macro(`.TH %s 1 "%s" "lcache %s" "lcache"`, strings.ToUpper(pageName(cmd)), from.date, from.version)
	macro(".SH NAME\n%s \\- %s", roff(pageName(cmd)), roff(cmd.Short))
	usage := cmd.UseLine()
	if !strings.HasPrefix(usage, "lcache") {
		usage = "lcache " + usage
	}
	macro(".SH SYNOPSIS\n.B %s", roff(usage))
	macro(".SH DESCRIPTION")
	for i, paragraph := range strings.Split(cmd.Long, "\n\n") {
		if i > 0 {
			macro(".PP")
		}
		macro("%s", filled(paragraph))
	}
	if below := shown(cmd); len(below) > 0 {
		macro(".SH COMMANDS")
		for _, c := range below {
			macro(".TP\n.BR %s (1)\n%s", roff(pageName(c)), roff(c.Short))
		}
	}
	macro(".SH OPTIONS")
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { writeOption(b, f) })
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { writeOption(b, f) })
	macro(".SH ENVIRONMENT\n%s", filled("Every option can also be given as LCACHE_<OPTION>, with _ for -. An option given on the command line wins."))
	codes := cmd.Annotations[exitCodesNote]
	if codes == "" {
		codes = defaultExitCodes
	}
	macro(".SH EXIT STATUS\n.EX\n%s\n.EE", roff(unindented(strings.TrimRight(codes, "\n"))))
	macro(".SH EXAMPLES\n.EX\n%s\n.EE", roff(unindented(cmd.Example)))
	if cmd.HasParent() {
		macro(".SH SEE ALSO\n.BR %s (1)", roff(pageName(cmd.Parent())))
	}
	return b.String()
}

func writeOption(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(name+" "+value)), filled(usage))
}

// unindented returns lines without the indentation of --help.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// filled returns a paragraph in lines of at most 78 bytes where words allow it, as man pages are written.
func filled(paragraph string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(paragraph) {
		if line != "" && len(line)+1+len(word) > 70 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return roff(strings.Join(append(lines, line), "\n"))
}

// roff escapes a text. A line must not begin like a request, and - would be printed as a hyphen, which nobody can paste into a shell.
func roff(text string) string {
	text = strings.NewReplacer("\\", "\\e", "-", "\\-", "…", "...", "·", "\\(bu").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = "\\&" + line
		}
	}
	return strings.Join(lines, "\n")
}
