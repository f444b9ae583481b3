package main

import (
	"io"
	"log/slog"
	"os"

	"lcache/cmd/lcache/internal/diagnosis"
	"lcache/internal/serve/status"
)

// newLogger makes the logger of a process, which writes one line for each message to out, in the format of --log-format. With --quiet it writes errors only.
// g.kept gets all messages of level INFO and above.
func newLogger(g *globals, out io.Writer, level slog.Level) *slog.Logger {
	if g.quiet {
		level = slog.LevelError
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: oneKey}
	var printed slog.Handler = slog.NewTextHandler(out, o)
	if g.logs == "json" {
		printed = slog.NewJSONHandler(out, o)
	}
	if g.kept == nil {
		return slog.New(printed)
	}
	kept := slog.NewJSONHandler(g.kept, &slog.HandlerOptions{Level: min(level, slog.LevelInfo), ReplaceAttr: oneKey})
	return slog.New(slog.NewMultiHandler(printed, kept))
}

// diagnose returns what a server of this process answers to DIAGNOSE. command is the command line of another program, at the end of this one's.
func (g *globals) diagnose(command []string) func() status.Diagnosis {
	return diagnosis.Process{Args: os.Args, Command: command, Environ: os.Environ(), Log: g.kept}.Collect
}

// oneKey gives errors one key, however the code calls them.
func oneKey(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "err" {
		a.Key = "error"
	}
	return a
}
