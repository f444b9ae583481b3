package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/attach"
	"lcache/internal/store/cachedir"
	"lcache/internal/units"
	"lcache/internal/usage"
)

func newListCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "ls [ROOT]",
		Short:      "List caches: source, bytes on disk, last use, process",
		SuggestFor: []string{"list", "caches"},
		Long: "ls lists the caches in a folder. Without ROOT it lists the caches of lcache run, and the caches that this user's\n" +
			"servers have open. It opens no cache, so it works while servers run, and lists damaged caches too.",
		Example: "  lcache ls\n  lcache ls /nvme/lcache\n  lcache ls --json | jq -r '.caches[] | select(.pid == 0) | .dir'",
		Args:    atMostOne,
	}
	cmd.Flags().BoolVar(&g.json, "json", false, "the list as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := listCaches(args)
		if err != nil {
			return err
		}
		if g.json {
			return writeJSON(cmd.OutOrStdout(), l)
		}
		writeList(cmd.OutOrStdout(), l, time.Now())
		return nil
	}
	return cmd
}

func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("takes one argument at most, got %q too: see %s --help", args[1], cmd.CommandPath())
	}
	return nil
}

// listing is the document of --json.
type listing struct {
	Roots  []string         `json:"roots"`
	Caches []cachedir.Cache `json:"caches"`
}

// listCaches lists the folder in args, which must exist; without one, the default folders and the caches of this user's servers.
func listCaches(args []string) (l listing, err error) {
	if len(args) > 0 {
		root, err := filepath.Abs(args[0])
		if err != nil {
			return l, fmt.Errorf("working directory: %w", err)
		}
		found, err := cachedir.List(root)
		return listing{[]string{root}, append([]cachedir.Cache{}, found...)}, err
	}
	if l.Roots, _, err = cacheRoots(nil); err != nil {
		return l, err
	}
	servers, err := attach.Registered(attach.Dir())
	if err != nil {
		return l, err
	}
	var served []string
	for _, s := range servers {
		served = append(served, s.Cache...)
	}
	l.Caches, err = cachedir.ListAll(l.Roots, served)
	return l, err
}

// writeList prints a line for each cache, and the bytes of all together.
func writeList(w io.Writer, l listing, now time.Time) {
	where := usage.Names(l.Roots, " and ")
	if len(l.Caches) == 0 {
		fmt.Fprintf(w, "no caches in %s\n", where)
		return
	}
	var here, elsewhere together
	width := len("bytes")
	for _, c := range l.Caches {
		of := &here
		if !l.lists(c.Dir) {
			of = &elsewhere
		}
		of.caches, of.bytes = of.caches+1, of.bytes+c.Bytes
		width = max(width, utf8.RuneCountInString(units.Bytes(c.Bytes)))
	}
	rows := [][]string{{"cache", "source", fmt.Sprintf("%*s", width, "bytes"), "last use", "pid"}}
	for _, c := range l.Caches {
		source, used, pid := usage.Name(c.Source), ago(now.Sub(c.LastUse)), "–"
		switch {
		case c.Link != "":
			source, used = "not used: it is a link to "+usage.Name(c.Link), "–"
		case c.Untrusted != "":
			source, used = "not used: "+usage.Message(strings.TrimPrefix(c.Untrusted, c.Dir+" ")), "–"
		case c.Source == "" && c.Parts > 1:
			source = fmt.Sprintf("part %d of %d of a cache", c.Part+1, c.Parts)
		case c.Source == "":
			source = "not known: its ingest was not finished"
		}
		if c.Pid != 0 {
			used, pid = "now", strconv.Itoa(c.Pid)
		}
		name := usage.Name(shownIn(l.Roots, c.Dir))
		if !l.lists(c.Dir) {
			name += " *"
		}
		rows = append(rows, []string{name, source, fmt.Sprintf("%*s", width, units.Bytes(c.Bytes)), used, pid})
	}
	table(w, "", rows)
	if here.caches > 0 || elsewhere.caches == 0 {
		fmt.Fprintf(w, "%s in %s\n", here, where)
	}
	if elsewhere.caches > 0 {
		fmt.Fprintf(w, "* %s elsewhere, shown because a server of yours has it open\n", elsewhere)
	}
}

// together counts caches and their bytes.
type together struct{ caches, bytes int64 }

func (a together) String() string {
	return units.Plural(a.caches, "cache", "caches") + " · " + units.Bytes(a.bytes)
}

// lists reports whether a cache is in a listed folder.
func (l listing) lists(dir string) bool {
	return slices.ContainsFunc(l.Roots, func(root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") })
}

// shownIn returns a directory relative to the root, if one root was listed.
func shownIn(roots []string, dir string) string {
	if rest, below := strings.CutPrefix(dir, roots[0]+"/"); below && len(roots) == 1 {
		return rest
	}
	return dir
}

// ago writes a time that has passed, in one unit.
func ago(d time.Duration) string {
	switch hours := int64(d.Hours()); {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int64(d.Minutes()))
	case hours < 48:
		return fmt.Sprintf("%d h ago", hours)
	default:
		return fmt.Sprintf("%s days ago", units.Count(hours/24))
	}
}
