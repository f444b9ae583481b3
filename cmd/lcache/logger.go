package main

import (
	"io"
	"log/slog"
)

// newLogger makes the one logger of a process: lines of text on stderr. --quiet leaves errors only.
func newLogger(g *globals, out io.Writer, level slog.Level) *slog.Logger {
	if g.quiet {
		level = slog.LevelError
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}
