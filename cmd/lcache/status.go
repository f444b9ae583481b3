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
	for first := true; ; first = false {
		var err error
		if first || o.watch && o.socket == "" {
			if servers, err = connectAll(o.socket, servers); err != nil {
				return err
			}
		}
		var page bytes.Buffer
		if servers, err = lookAtAll(servers, o, &page); err != nil {
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

// lookAtAll queries each server and writes its view. It leaves out a server that is gone, unless the user named its socket.
func lookAtAll(servers []*watched, o statusOptions, page *bytes.Buffer) (kept []*watched, err error) {
	var documents []json.RawMessage
	for _, s := range servers {
		raw, err := s.look()
		if err != nil && o.watch && o.socket == "" {
			s.Close()
			continue
		}
		if kept = append(kept, s); err != nil {
			return servers, err
		}
		documents = append(documents, raw)
	}
	if o.json {
		return kept, writeDocuments(page, documents, o.watch)
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
	if o.clear {
		lines = crop(lines, on)
	}
	for _, line := range lines {
		fmt.Fprintln(page, line)
	}
	return kept, nil
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

// connectAll connects to the server at socket, or without one to all servers of this user that answer. Those in have are connected.
func connectAll(socket string, have []*watched) ([]*watched, error) {
	if socket != "" {
		path, err := filepath.Abs(socket)
		if err != nil {
			return have, fmt.Errorf("working directory: %w", err)
		}
		c, err := attach.Dial(path, clientName())
		if err != nil {
			return have, err
		}
		return []*watched{{Client: c}}, nil
	}
	clients, err := attach.DialRegistered(attach.Dir(), clientName(), func(socket string) bool {
		return slices.ContainsFunc(have, func(w *watched) bool { return w.Path() == socket })
	})
	if err != nil {
		return have, err
	}
	for _, c := range clients {
		have = append(have, &watched{Client: c})
	}
	if len(have) == 0 {
		return nil, errcode.New(errcode.NoServer, "no server of this user runs: start one with lcache serve --cache DIR, or name its --socket")
	}
	return have, nil
}
