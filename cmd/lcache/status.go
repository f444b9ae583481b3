package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
)

// Times between two questions for the status, over which rates are measured: for the first text, and for the others of --watch.
const (
	lookTime  = 500 * time.Millisecond
	watchTime = 2 * time.Second
)

type statusOptions struct {
	look, every time.Duration
	socket      string
	json        bool
	watch       bool
	clear       bool          // the output is a terminal: each page replaces the last one
	on          func() screen // size of the output; nil: no limit
	warn        io.Writer     // for what is no part of the JSON
}

func newStatusCommand(g *globals) *cobra.Command {
	o := statusOptions{look: lookTime, every: watchTime}
	cmd := &cobra.Command{
		Use:        "status",
		Short:      "Show your servers: epoch, speed, bottleneck",
		SuggestFor: []string{"ps", "top", "info"},
		Long: "status shows the epoch, speed and bottleneck of a server. Without --socket it shows all servers of this user;\n" +
			"servers in use come first. Servers whose datasets have the same name also show cache and process. If a server has several jobs,\n" +
			"each has one line. Hits and source bytes count from the start of the current epoch. A line that begins with ! needs\n" +
			"your attention. On a terminal, status shows as much as fits; --watch shows the same.\n\n" +
			"With --json, the output is the status document of one server, or {\"schema\": 1, \"servers\": [document, …]} for several.",
		Example: "  lcache status\n  lcache status --watch\n  lcache status --socket /nvme/train/lcache.sock --json | jq .totals.hits",
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", "", "socket `PATH` of the server (default: this user's servers)")
	f.BoolVar(&o.json, "json", false, "the status document")
	f.BoolVar(&o.watch, "watch", false, "refresh every two seconds until interrupted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if out, ok := cmd.OutOrStdout().(*os.File); ok && isTerminal(out) {
			o.clear, o.on = o.watch, func() screen { return screenOf(out) }
		}
		o.warn = cmd.ErrOrStderr()
		return showStatus(cmd.Context(), o, cmd.OutOrStdout())
	}
	return cmd
}

// screenOf returns the size of a terminal, without the line that the cursor is left in.
func screenOf(out *os.File) screen {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || width <= 0 || height <= 1 {
		return screen{}
	}
	return screen{width, height - 1}
}

// watched is one server that is shown.
type watched struct {
	*attach.Client
	overview.View
}

// showStatus prints the status once, or with --watch until ctx ends, which is not an error.
func showStatus(ctx context.Context, o statusOptions, out io.Writer) error {
	var servers []*watched
	defer func() {
		for _, s := range servers {
			s.Close()
		}
	}()
	shown := false
	var silent []string
	for first := true; ; first = false {
		var err error
		if first || o.watch && o.socket == "" {
			if servers, silent, err = connectAll(o.socket, servers); err != nil {
				return err
			}
		}
		var page bytes.Buffer
		if servers, silent, err = lookAtAll(servers, silent, o, &page); err != nil {
			return err
		}
		// The first text would have no rates: ask once more before it is shown.
		wait := o.look
		if !first || o.json {
			if err := o.show(out, page.Bytes(), !shown); err != nil {
				return fmt.Errorf("write status: %w", err)
			}
			shown = true
			if !o.watch {
				return nil
			}
			wait = o.every
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// lookAtAll queries all servers at once and writes their views. It leaves out a server that is gone or silent, unless the user named its socket. silent
// describes servers that do not answer.
func lookAtAll(servers []*watched, silent []string, o statusOptions, page *bytes.Buffer) (kept []*watched, stillSilent []string, err error) {
	raws, errs := make([]json.RawMessage, len(servers)), make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { raws[i], errs[i] = s.look() })
	}
	all.Wait()
	var documents []json.RawMessage
	for i, s := range servers {
		isSilent := attach.IsSilent(errs[i]) && o.socket == ""
		switch {
		case isSilent || errs[i] != nil && o.watch && o.socket == "":
			if s.Close(); isSilent {
				silent = append(silent, s.String())
			}
			continue
		case errs[i] != nil:
			return servers, silent, errs[i]
		}
		kept, documents = append(kept, s), append(documents, raws[i])
	}
	if len(kept) == 0 && len(silent) > 0 && !o.watch {
		return nil, nil, silence(silent)
	}
	if o.json {
		for _, server := range silent {
			fmt.Fprintln(o.warn, "lcache status: "+silentLine(server))
		}
		return kept, silent, writeDocuments(page, documents, o.watch)
	}
	markTwins(kept)
	var views []overview.View
	for _, s := range kept {
		views = append(views, s.View)
	}
	var on screen
	if o.on != nil {
		on = o.on()
	}
	lines := statusPage(views, on)
	for _, server := range silent {
		lines = append(lines, "! "+silentLine(server))
	}
	if o.clear {
		lines = crop(lines, on)
	}
	for _, line := range lines {
		fmt.Fprintln(page, line)
	}
	return kept, silent, nil
}

// silentLine is the warning about a server that does not answer.
func silentLine(server string) string {
	return fmt.Sprintf("%s has not answered for %v: it is stopped, or its disk hangs; look at its log, or end it with kill", server, attach.FoundDeadline)
}

// silence is the error if no server answers.
func silence(silent []string) error {
	return errcode.New(errcode.NoServer, silentLine(silent[0]))
}

// markTwins notes which servers have a name that another one has, too.
func markTwins(servers []*watched) {
	named := map[string]int{}
	for _, s := range servers {
		if len(s.Now.Jobs) > 0 {
			named[s.Now.Jobs[0].Name]++ // all jobs of a server have one name
		}
	}
	for _, s := range servers {
		s.Twin = len(s.Now.Jobs) > 0 && named[s.Now.Jobs[0].Name] > 1
	}
}

// show writes a page. On a terminal it replaces the last page line by line, so that the screen does not flicker. Elsewhere there is an empty
// line between pages.
func (o statusOptions) show(out io.Writer, page []byte, first bool) error {
	switch {
	case o.json:
	case o.clear:
		begin := "\x1b[H"
		if first {
			begin = "\x1b[H\x1b[2J"
		}
		page = append([]byte(begin), bytes.ReplaceAll(page, []byte("\n"), []byte("\x1b[K\n"))...)
		page = append(page, "\x1b[J"...)
	case !first:
		page = append([]byte("\n"), page...)
	}
	_, err := out.Write(page)
	return err
}

// look updates the view of a server. Rates cover the time since the last look, by the server's clock.
func (w *watched) look() (json.RawMessage, error) {
	raw, s, err := w.Status()
	if err != nil {
		return nil, err
	}
	if w.Before = w.Now; w.Before.Schema == 0 {
		w.Before = s
	}
	w.Now = s
	w.Seconds = s.UptimeSeconds - w.Before.UptimeSeconds
	w.Remember()
	return raw, nil
}

// writeDocuments writes the document of one server unchanged, and the documents of several servers as a list. If no server answers, it writes nothing.
func writeDocuments(w *bytes.Buffer, documents []json.RawMessage, compact bool) error {
	if len(documents) == 0 {
		return nil
	}
	raw, err := documents[0], error(nil)
	if len(documents) > 1 {
		if raw, err = jsonbytes.Marshal(map[string]any{"schema": 1, "servers": documents}); err != nil {
			return fmt.Errorf("join the documents: %w", err)
		}
	}
	if compact {
		err = json.Compact(w, raw)
	} else {
		err = json.Indent(w, raw, "", "  ")
	}
	w.WriteByte('\n')
	return err
}

// connectAll connects to the server at socket, or without one to all servers of this user that answer. Those in have are connected. silent describes
// the others.
func connectAll(socket string, have []*watched) (all []*watched, silent []string, err error) {
	if socket != "" {
		path, err := filepath.Abs(socket)
		if err != nil {
			return have, nil, fmt.Errorf("working directory: %w", err)
		}
		c, err := attach.Dial(path, clientName())
		if err != nil {
			return have, nil, err
		}
		return []*watched{{Client: c}}, nil, nil
	}
	clients, silent, err := attach.DialRegistered(attach.Dir(), clientName(), func(socket string) bool {
		return slices.ContainsFunc(have, func(w *watched) bool { return w.Path() == socket })
	})
	if err != nil {
		return have, nil, err
	}
	for _, c := range clients {
		have = append(have, &watched{Client: c})
	}
	if len(have) == 0 && len(silent) == 0 {
		return nil, nil, errcode.New(errcode.NoServer, "no server of this user runs: start one with lcache serve --cache DIR, or name its --socket")
	}
	return have, silent, nil
}
