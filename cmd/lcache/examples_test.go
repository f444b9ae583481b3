package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lcache/internal/testenv"
)

// everyCommand is the root and all below it, help included.
func everyCommand() (all []*cobra.Command) {
	root := newRootCommand(&globals{progress: "auto"})
	root.InitDefaultHelpCmd()
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		all = append(all, cmd)
		for _, c := range cmd.Commands() {
			add(c)
		}
	}
	add(root)
	return all
}

// TestExamples: every line of every command's example is run by a shell, and works.
func TestExamples(t *testing.T) {
	for _, cmd := range everyCommand() {
		lines := commandLines(cmd.Example)
		if len(lines) == 0 {
			t.Errorf("%s: no example", cmd.CommandPath())
		}
		for i, line := range lines {
			t.Run(fmt.Sprint(cmd.Name(), i), func(t *testing.T) {
				if cmd.Name() == "simulate" {
					testenv.WithoutRace(t) // it only computes
				} else {
					testenv.AnyIO(t)
				}
				t.Parallel()
				s := newStage(t)
				if strings.Contains(line, "--inspect") {
					s.run("lcache doctor --bundle lcache.tar.gz")
				}
				s.run(line)
			})
		}
	}
}
