package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestLinkFlags: the two flags and the two variables follow one rule. A flag overrides the environment, and a contradiction is an error.
func TestLinkFlags(t *testing.T) {
	const contradict = "contradict each other"
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string // "": nothing said
	}{
		{nil, nil, ""},
		{[]string{"--follow-links"}, nil, "follow"},
		{[]string{"--no-follow-links"}, nil, "no"},
		{[]string{"--follow-links=false"}, nil, "no"},
		{[]string{"--no-follow-links=false"}, nil, ""},
		{nil, map[string]string{"LCACHE_FOLLOW_LINKS": "1"}, "follow"},
		{nil, map[string]string{"LCACHE_NO_FOLLOW_LINKS": "true"}, "no"},
		{nil, map[string]string{"LCACHE_NO_FOLLOW_LINKS": ""}, ""},
		{[]string{"--follow-links"}, map[string]string{"LCACHE_NO_FOLLOW_LINKS": "1"}, "follow"},
		{[]string{"--no-follow-links"}, map[string]string{"LCACHE_FOLLOW_LINKS": "1"}, "no"},
		{[]string{"--follow-links", "--no-follow-links"}, nil, contradict},
		{nil, map[string]string{"LCACHE_FOLLOW_LINKS": "1", "LCACHE_NO_FOLLOW_LINKS": "1"}, contradict},
		{[]string{"--follow-links=perhaps"}, nil, "must be true or false"},
	} {
		var rule *bool
		f := pflag.NewFlagSet("x", pflag.ContinueOnError)
		addLinkFlags(f, &rule, "", "")
		err := f.Parse(c.args)
		if err == nil {
			err = fromEnvironment(f, func(k string) (string, bool) { v, ok := c.env[k]; return v, ok })
		}
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case rule != nil && *rule:
			got = "follow"
		case rule != nil:
			got = "no"
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q with %q: got %q, want %q", c.args, c.env, got, c.want)
		}
	}
}
