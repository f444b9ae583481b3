package main

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlagGroups: the help of a command with many flags shows each of them once, in a group. Each flag is in one group, so that a new one gets a place.
func TestFlagGroups(t *testing.T) {
	for name, want := range map[string][]string{
		"run":    {"Source", "Job", "Cache", "Server", "Network", "Cluster", "Watch", "Global Flags"},
		"ingest": {"Source", "Job", "Cache", "Network", "Cluster", "Watch", "Global Flags"},
		"serve":  {"Source", "Cache", "Server", "Network", "Cluster", "Watch", "Global Flags"},
		"ls":     {"Flags", "Global Flags"},
	} {
		var out, errs bytes.Buffer
		if code := run([]string{name, "--help"}, &out, &errs); code != exitDone {
			t.Fatalf("%s --help ended with %d: %s", name, code, errs.String())
		}
		var got []string
		for _, line := range regexp.MustCompile(`(?m)^([A-Z][a-z A-Z]*):\n {2,6}-`).FindAllStringSubmatch(out.String(), -1) {
			got = append(got, line[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s --help has the groups %q, want %q", name, got, want)
		}
		for _, cmd := range everyCommand() {
			if cmd.Name() != name {
				continue
			}
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				lines := regexp.MustCompile(`(?m)^(  -\w, |      )--`+f.Name+` `).FindAllString(out.String(), -1)
				if n := len(lines); n != 1 && !f.Hidden {
					t.Errorf("%s --help has --%s %d times: give it one place in flagGroups", name, f.Name, n)
				}
			})
		}
	}
}
