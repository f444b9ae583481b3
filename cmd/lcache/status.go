package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// Rates are measured over this long: between two looks, and between two pictures of --watch.
const (
	lookTime  = 500 * time.Millisecond
	watchTime = 2 * time.Second
)

type statusOptions struct {
	look, every time.Duration
	socket      string
	json        bool
	watch       bool
	clear       bool // the output is a terminal: each picture replaces the last
}

func newStatusCommand(g *globals) *cobra.Command {
	o := statusOptions{look: lookTime, every: watchTime}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the servers of this user are doing",
		Long: "status asks a running server how its job goes: epoch, speed, who waits for whom. Without --socket it shows\n" +
			"all servers of this user. Lines that begin with ! need a person.",
		Example: "  lcache status\n  lcache status --watch\n  lcache status --socket /nvme/train/lcache.sock --json | jq .jobs[0].hits",
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", "", "the server's socket (default: this user's servers)")
	f.BoolVar(&o.json, "json", false, "the status document")
	f.BoolVar(&o.watch, "watch", false, "again every two seconds, until interrupted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.clear = o.watch && isTerminal(cmd.OutOrStdout())
		return showStatus(cmd.Context(), o, cmd.OutOrStdout())
	}
	return cmd
}

// showStatus prints once, or until ctx ends, which is then no error.
func showStatus(ctx context.Context, o statusOptions, out io.Writer) error {
	clients, err := connectAll(o.socket)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	views := make([]view, len(clients))
	wait := time.Duration(0)
	for first := true; ; first = false {
		var page bytes.Buffer
		for i, c := range clients {
			raw, err := look(c, &views[i], wait)
			if err != nil {
				return err
			}
			if o.json {
				err = writeDocument(&page, raw, o.watch)
			} else {
				if i > 0 {
					fmt.Fprintln(&page)
				}
				writeStatus(&page, views[i])
			}
			if err != nil {
				return err
			}
		}
		// The first text would have no rates: look once more before it is shown.
		if !first || o.json {
			if o.clear {
				io.WriteString(out, "\x1b[H\x1b[2J")
			}
			if _, err := page.WriteTo(out); err != nil {
				return fmt.Errorf("write status: %w", err)
			}
			if !o.watch {
				return nil
			}
		}
		if wait = o.every; first {
			wait = o.look
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// look brings one view up to date; elapsed is the time since the last look.
func look(c *client, v *view, elapsed time.Duration) (json.RawMessage, error) {
	raw, s, err := c.status()
	if err != nil {
		return nil, err
	}
	v.before, v.now = v.now, s
	v.seconds = v.now.UptimeSeconds - v.before.UptimeSeconds
	if elapsed == 0 {
		v.before, v.seconds = s, 0
	}
	return raw, nil
}

func writeDocument(w *bytes.Buffer, raw json.RawMessage, compact bool) error {
	var err error
	if compact {
		err = json.Compact(w, raw)
	} else {
		err = json.Indent(w, raw, "", "  ")
	}
	w.WriteByte('\n')
	return err
}

// connectAll connects to the one server asked for, or to all of this user that answer.
func connectAll(socket string) ([]*client, error) {
	if socket != "" {
		path, err := filepath.Abs(socket)
		if err != nil {
			return nil, fmt.Errorf("working directory: %w", err)
		}
		c, err := dial(path)
		if err != nil {
			return nil, err
		}
		return []*client{c}, nil
	}
	entries, err := registered(runtimeDir())
	if err != nil {
		return nil, err
	}
	var clients []*client
	for _, e := range entries {
		if c, err := dial(e.Socket); err == nil {
			clients = append(clients, c)
		}
	}
	if len(clients) == 0 {
		return nil, errors.New("no server of this user runs: start one with lcache serve --cache DIR, or name its --socket")
	}
	return clients, nil
}
