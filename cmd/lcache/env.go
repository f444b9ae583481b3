package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/internal/store/cache"
	"lcache/internal/usage"
)

// envName returns the variable of a flag: --batch-size has LCACHE_BATCH_SIZE.
func envName(flag string) string {
	return "LCACHE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets every flag that the command line did not set from its variable. An empty variable counts as unset: so a shell
// script can switch it off. A flag whose opposite was typed is left alone, too.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var first error
	typed := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { typed[f.Name] = true })
	flags.VisitAll(func(f *pflag.Flag) {
		if typed[opposite(f.Name)] || f.Changed || f.Name == "help" || f.Name == "version" || first != nil {
			return
		}
		value, ok := lookup(envName(f.Name))
		if !ok || value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			first = usagef("%s=%s: %w", envName(f.Name), value, plainly(err))
			return
		}
		f.Changed = true
	})
	return first
}

// opposite returns the name of the opposite flag, which need not exist.
func opposite(flag string) string {
	if without, found := strings.CutPrefix(flag, "no-"); found {
		return without
	}
	return "no-" + flag
}

// withoutFlag are the variables of this program and of the Python client that have no flag.
var withoutFlag = []string{"LCACHE_DIRECT", "LCACHE_BIN", lingerVariable, "LCACHE_CLIENT_ONLY", tokenVariable}

// misspeltVariables returns a line for each variable whose name is one typing error away from a variable of lcache. Other names that begin
// with LCACHE_ may belong to other programs.
func misspeltVariables(root *cobra.Command, env []string) (lines []string) {
	const prefix = "LCACHE_"
	var known []string
	add := func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			known = append(known, strings.TrimPrefix(envName(f.Name), prefix))
		}
	}
	root.PersistentFlags().VisitAll(add)
	for _, cmd := range root.Commands() {
		cmd.LocalFlags().VisitAll(add)
	}
	for _, name := range withoutFlag {
		known = append(known, strings.TrimPrefix(name, prefix))
	}
	socket := strings.TrimPrefix(envName("socket"), prefix) + "_" // LCACHE_SOCKET_<NAME> of lcache run: any name
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		name, ours := strings.CutPrefix(name, prefix)
		if !ours || slices.Contains(known, name) || strings.HasPrefix(name, socket) {
			continue
		}
		if near := usage.Slip(name, known); near != "" {
			lines = append(lines, fmt.Sprintf("%s%s is not known: did you mean %s%s?", prefix, usage.Name(name), prefix, near))
		}
	}
	return lines
}

// lingerVariable has the time that servers stay after COMMAND or the last client: here for other machines, in the Python client for any client.
const lingerVariable = "LCACHE_LINGER"

var lingerForm = regexp.MustCompile(`^(\d+(\.\d*)?|\.\d+)(ms|s|m|h)?$`)

// lingerTime reads lingerVariable as the Python client does: seconds, or a number with a unit.
func lingerTime(text string) (time.Duration, error) {
	text = cmp.Or(strings.TrimSpace(text), "60")
	found := lingerForm.FindStringSubmatch(text)
	if found != nil && found[3] == "" {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if found == nil || err != nil {
		return 0, usagef("%s=%s: give the time that a server stays for other machines: seconds, such as 60 or 0.5, or 2m; 0: it ends at once", lingerVariable, text)
	}
	return d, nil
}

// addOnErrorFlag adds --on-error, which says how to treat a sample that can't be read.
func addOnErrorFlag(flags *pflag.FlagSet, policy *string) {
	*policy = "fail"
	flags.Var(&choice{policy, []string{"fail", "skip"}}, "on-error", "for an unreadable sample: fail the request, or skip the sample")
}

// addIOFlags adds --io. Direct or buffered I/O has no flag, only the variable LCACHE_DIRECT, because it is for tests and diagnosis.
func addIOFlags(flags *pflag.FlagSet, io *cache.IO) {
	io.Engine = "auto"
	flags.Var(&choice{&io.Engine, []string{"auto", "uring", "pread"}}, "io", "I/O engine")
}

func directFromEnvironment(lookup func(string) (string, bool)) (string, error) {
	switch v, _ := lookup("LCACHE_DIRECT"); v {
	case "":
		return "auto", nil
	case "0":
		return "off", nil
	case "1":
		return "on", nil
	default:
		return "", usagef("LCACHE_DIRECT=%s: must be 0 (buffered) or 1 (direct)", v)
	}
}

// choice is a flag whose value is one of a few words.
type choice struct {
	to    *string
	words []string
}

func (c *choice) String() string { return *c.to }
func (c *choice) Type() string   { return strings.Join(c.words, "|") }
func (c *choice) Set(s string) error {
	for _, w := range c.words {
		if s == w {
			*c.to = s
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(c.words, ", "))
}
