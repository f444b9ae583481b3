package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lcache/internal/store/cachedir"
	"lcache/internal/units"
	"lcache/internal/usage"
)

func newRemoveCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "rm DIR[,DIR…]",
		Short:      "Remove a cache that is not in use",
		SuggestFor: []string{"remove", "delete", "clean", "purge"},
		Long: "rm removes the files that lcache created in a directory, and then the directory. It also removes the files of a killed\n" +
			"ingest. It refuses a cache that a process uses, and a directory that is not a cache. Other files in the directory stay,\n" +
			"and then the directory stays too. rm never touches the source.",
		Example: "  lcache rm /nvme/lcache/train-8c1f02aa\n  lcache rm /nvme0/train,/nvme1/train",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("takes one argument, the cache's directory: see %s --help", cmd.CommandPath())
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&g.json, "json", false, "the removed cache as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var cache []string
		if err := (dirs{&cache}).Set(args[0]); err != nil {
			return &usageError{err}
		}
		done, err := cachedir.RemoveAll(cache)
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

func writeRemoved(w io.Writer, done []cachedir.Removed) {
	parts := 0
	for _, r := range done {
		of := ""
		if r.Source != "" {
			of = "cache of " + usage.Name(r.Source)
		}
		fmt.Fprintf(w, "removed %s\n", joined(usage.Name(r.Dir), of, units.Bytes(r.Bytes)))
		if within := cachedir.Within(r.Dir); within != "" {
			fmt.Fprintf(w, "  the directory stays, because it has other caches: %s\n", usage.Message(within))
		} else if len(r.Left) > 0 {
			fmt.Fprintf(w, "  the directory stays, because it has other files: %s\n", usage.Names(r.Left, ", "))
		}
		parts = max(parts, r.Parts)
	}
	if parts > len(done) {
		fmt.Fprintf(w, "! this cache had %d directories: the others are useless now; remove them too\n", parts)
	}
}
