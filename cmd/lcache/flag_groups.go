package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroups are the groups in which the help of a command with many flags shows them.
var flagGroups = []struct {
	title string
	flags []string
}{
	{"Source", []string{"source", "ext", "flat", "allow-empty", "group", "part", "stream", "labels", "columns", "dtype", "feature", "key", "label-column", "label-feature", "label-field", "record-bytes", "shape", "follow-links", "no-follow-links", "jobs", "relist", "share", "dry-run"}},
	{"Job", []string{"recipe", "seed", "epochs", "batch-size", "world-size", "ranks", "drop-last", "param"}},
	{"Cache", []string{"cache", "budget", "memory", "compress", "layout", "no-prefill", "facts", "endurance", "io"}},
	{"Server", []string{"socket", "socket-mode", "socket-group", "take-over", "exit-idle", "on-error", "jobs-max"}},
	{"Network", []string{"s3-endpoint-url", "s3-region", "s3-profile", "s3-path-style", "s3-unsigned", "s3-requester-pays", "http-allow-other-hosts", "source-hedge"}},
	{"Cluster", []string{"cluster", "cluster-key", "dataset", "expect", "listen", "advertise", "peer-grace", "peer-timeout", "peer-memory", "tls-cert", "tls-key", "tls-ca", "peer-insecure"}},
	{"Watch", []string{"metrics", "metrics-token-file", "metrics-file", "page", "headspace", "json", "help", "version"}},
}

// groupedNote is the annotation of a command whose help shows its flags in groups.
const groupedNote = "flags in groups"

func init() { cobra.AddTemplateFunc("ownFlagUsages", ownFlagUsages) }

// cobraFlagUsages is the part of cobra's usage template that shows the flags of a command, for which ownFlagUsages stands.
const cobraFlagUsages = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"

// ownFlagUsages is the help text of a command's own flags.
func ownFlagUsages(cmd *cobra.Command) string {
	return strings.TrimRight(flagUsages(cmd, cmd.LocalFlags()), "\n")
}

// flagUsages is the help text of some flags of a command, with a title for each group.
func flagUsages(cmd *cobra.Command, flags *pflag.FlagSet) string {
	if cmd.Annotations[groupedNote] == "" {
		return "Flags:\n" + flags.FlagUsages()
	}
	var parts []string
	for _, g := range flagGroups {
		if group := within(flags, g.flags); group.HasAvailableFlags() {
			parts = append(parts, g.title+":\n"+group.FlagUsages())
		}
	}
	return strings.Join(parts, "\n")
}

// within returns the flags with one of the names, in the order of flags.
func within(flags *pflag.FlagSet, names []string) *pflag.FlagSet {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	some.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(names, f.Name) {
			some.AddFlag(f)
		}
	})
	return some
}
