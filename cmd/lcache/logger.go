package main

import (
	"io"
	"log/slog"
)

// newLogger makes the logger of a process, which writes one line for each message to out, in the format of --log-format. With --quiet it writes errors only.
func newLogger(g *globals, out io.Writer, level slog.Level) *slog.Logger {
	if g.quiet {
		level = slog.LevelError
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: oneKey}
	if g.logs == "json" {
		return slog.New(slog.NewJSONHandler(out, o))
	}
	return slog.New(slog.NewTextHandler(out, o))
}

// oneKey gives errors one key, however the code calls them.
func oneKey(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "err" {
		a.Key = "error"
	}
	return a
}
