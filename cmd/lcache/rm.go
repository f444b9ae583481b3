package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"lcache/caches"
	"lcache/figures"
)

func newRemoveCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "rm DIR[,DIR…]",
		Short:      "Remove a cache that nobody uses",
		SuggestFor: []string{"remove", "delete", "clean", "purge"},
		Long: "rm removes the files that lcache made in a directory, and then the directory. It refuses a cache that a process\n" +
			"uses, and a directory that is not a cache. Files of others in it stay, and the directory with them. The source is\n" +
			"never touched.",
		Example: "  lcache rm /nvme/lcache/train-8c1f02aa\n  lcache rm /nvme0/train,/nvme1/train",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("takes one argument, the cache's directory: see %s --help", cmd.CommandPath())
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&g.json, "json", false, "what was removed as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var cache []string
		if err := (dirs{&cache}).Set(args[0]); err != nil {
			return &usageError{err}
		}
		done, err := removeCache(cache)
		switch {
		case err != nil && len(done) == 0:
			return err
		case g.json:
			return errors.Join(err, writeJSON(cmd.OutOrStdout(), map[string]any{"removed": done}))
		}
		writeRemoved(cmd.OutOrStdout(), done)
		return err
	}
	return cmd
}

// removed is one directory that was.
type removed struct {
	caches.Cache
	Left []string `json:"left"` // what is not lcache's, and stays
}

// removeCache looks at all directories before it touches one. With an error, done is what was removed before it.
func removeCache(cache []string) (done []removed, err error) {
	for _, dir := range cache {
		c, err := caches.Look(dir)
		switch {
		case errors.Is(err, caches.ErrNotCache) && caches.Within(dir) != "":
			return nil, fmt.Errorf("%s is not a cache, it holds caches: give one of %s; nothing was removed", dir, caches.Within(dir))
		case errors.Is(err, caches.ErrNotCache):
			return nil, fmt.Errorf("%w; nothing was removed", err)
		case err != nil:
			return nil, err
		case c.Pid != 0:
			return nil, &caches.InUse{Dir: dir, Pid: c.Pid}
		}
	}
	for _, dir := range cache {
		c, left, err := caches.Remove(dir)
		if err != nil {
			return done, err
		}
		if left == nil {
			left = []string{}
		}
		done = append(done, removed{c, left})
	}
	return done, nil
}

func writeRemoved(w io.Writer, done []removed) {
	parts := 0
	for _, r := range done {
		of := ""
		if r.Source != "" {
			of = "cache of " + oneLine(r.Source)
		}
		fmt.Fprintf(w, "removed %s\n", joined(r.Dir, of, figures.Bytes(r.Bytes)))
		if within := caches.Within(r.Dir); within != "" {
			fmt.Fprintf(w, "  the directory stays, other caches lie in it: %s\n", oneLine(within))
		} else if len(r.Left) > 0 {
			fmt.Fprintf(w, "  the directory stays, lcache did not make what is in it: %s\n", oneLine(strings.Join(r.Left, ", ")))
		}
		parts = max(parts, r.Parts)
	}
	if parts > len(done) {
		fmt.Fprintf(w, "! this cache lay in %d directories: the rest of it is of no use now, remove it too\n", parts)
	}
}
