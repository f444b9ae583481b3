package main

import (
	"io"
	"log/slog"
)

// newLogger makes the logger of a process, which writes lines of text to out. With --quiet it writes errors only.
func newLogger(g *globals, out io.Writer, level slog.Level) *slog.Logger {
	if g.quiet {
		level = slog.LevelError
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}
