package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// addLinkFlags adds --follow-links and --no-follow-links, for links that leave the source. Without either, *to stays nil.
func addLinkFlags(flags *pflag.FlagSet, to **bool, follow, noFollow string) {
	for _, l := range []linkRule{{to, true}, {to, false}} {
		name, usage := "follow-links", follow
		if !l.follow {
			name, usage = "no-follow-links", noFollow
		}
		flags.VarPF(l, name, "", usage).NoOptDefVal = "true"
	}
}

// linkRule is one of the two flags. --follow-links=false means --no-follow-links; --no-follow-links=false means nothing.
type linkRule struct {
	to     **bool
	follow bool
}

func (l linkRule) Type() string   { return "bool" }
func (l linkRule) String() string { return "" }
func (l linkRule) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("must be true or false")
	}
	rule := l.follow == on
	if !on && !l.follow {
		return nil
	}
	if said := *l.to; said != nil && *said != rule {
		return fmt.Errorf("--follow-links and --no-follow-links contradict each other: give one of them")
	}
	*l.to = &rule
	return nil
}
