package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	firstDocument  = `{"schema": 1, "uptime_seconds": 10, "jobs": [{"name": "train", "bytes_delivered": 0, "samples_delivered": 0, "bound_by": "disk"}]}`
	secondDocument = `{"schema": 1, "uptime_seconds": 12, "jobs": [{"name": "train", "bytes_delivered": 5000000, "samples_delivered": 70, "bound_by": "disk"}]}`
)

// documents is a server that answers with these status documents, one after the other.
func documents(t *testing.T, texts ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	answers := [][]byte{frame(1, frameJSON, 1, "{}")}
	for i, text := range texts {
		answers = append(answers, frame(1, frameJSON, uint32(i+2), text))
	}
	answerWith(t, path, answers...)
	return path
}

// TestStatusRates holds where rates come from: two looks, and the server's own clock between them.
func TestStatusRates(t *testing.T) {
	var out bytes.Buffer
	o := statusOptions{socket: documents(t, firstDocument, secondDocument), look: time.Millisecond}
	if err := showStatus(context.Background(), o, &out); err != nil {
		t.Fatal(err)
	}
	if want := "\n  2.5 MB/s · 35 samples/s · hits – · divergence 0\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out.String())
	}
	if n := strings.Count(out.String(), "train"); n != 1 {
		t.Errorf("shown %d times", n)
	}
}

func TestStatusJSON(t *testing.T) {
	var out bytes.Buffer
	o := statusOptions{socket: documents(t, firstDocument), json: true}
	if err := showStatus(context.Background(), o, &out); err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out.Bytes()); err != nil {
		t.Fatal(err)
	}
	if got := compact.String(); got != strings.ReplaceAll(strings.ReplaceAll(firstDocument, ": ", ":"), ", ", ",") {
		t.Errorf("got %s", got)
	}
}

// TestStatusWatch ends with the server: it is gone after two documents, and that is said.
func TestStatusWatch(t *testing.T) {
	var out bytes.Buffer
	o := statusOptions{socket: documents(t, firstDocument, secondDocument), json: true, watch: true, look: time.Millisecond, every: time.Millisecond}
	err := showStatus(context.Background(), o, &out)
	if err == nil || !strings.Contains(err.Error(), "server at ") {
		t.Errorf("got %v", err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], `"uptime_seconds":12`) {
		t.Errorf("got %q", lines)
	}
}

// TestStatusInterrupted: Ctrl-C is how one ends --watch, so it is no error.
func TestStatusInterrupted(t *testing.T) {
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o := statusOptions{socket: documents(t, firstDocument), watch: true, json: true, look: time.Hour, every: time.Hour}
	if err := showStatus(ctx, o, &out); err != nil {
		t.Error(err)
	}
}

// TestStatusOfAll shows every server of the registry that answers, and passes over one that does not.
func TestStatusOfAll(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	for name, socket := range map[string]string{"a": documents(t, firstDocument), "b": documents(t, secondDocument), "c": "/nowhere/s"} {
		e, err := register(filepath.Join(dir, "lcache"), socket, []string{"/cache"})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "lcache", name+".json"), `{"pid": `+itoa(e.PID)+`, "socket": "`+socket+`"}`)
		e.remove()
	}
	var out bytes.Buffer
	if err := showStatus(context.Background(), statusOptions{json: true}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"uptime_seconds": 10`, `"uptime_seconds": 12`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
}
