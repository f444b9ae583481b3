package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/attach/attachtest"
	"lcache/internal/serve/status"
)

const (
	firstDocument  = `{"schema": 1, "uptime_seconds": 10, "jobs": [{"name": "train", "bytes_delivered": 0, "samples_delivered": 0, "bound_by": "disk"}]}`
	secondDocument = `{"schema": 1, "uptime_seconds": 12, "jobs": [{"name": "train", "bytes_delivered": 5000000, "samples_delivered": 70, "bound_by": "disk"}]}`
)

// documents is a server that answers with these status documents, one after the other.
func documents(t *testing.T, texts ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	answers := [][]byte{attachtest.Frame(1, attachtest.Document, 1, "{}")}
	for i, text := range texts {
		answers = append(answers, attachtest.Frame(1, attachtest.Document, uint32(i+2), text))
	}
	attachtest.Answer(t, path, answers...)
	return path
}

// TestStatusRates holds where rates come from: two looks, and the server's own clock between them.
func TestStatusRates(t *testing.T) {
	var out bytes.Buffer
	o := statusOptions{socket: documents(t, firstDocument, secondDocument), look: time.Millisecond}
	if err := showStatus(context.Background(), o, &out); err != nil {
		t.Fatal(err)
	}
	if want := "\n  2.5 MB/s · 35 samples/s · hits –\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out.String())
	}
	if n := strings.Count(out.String(), "train"); n != 1 {
		t.Errorf("shown %d times", n)
	}
}

// TestTwins: two jobs of one server are not shown as two servers with one name.
func TestTwins(t *testing.T) {
	server := func(name string, jobs int) *watched {
		w := &watched{}
		for range jobs {
			w.Now.Jobs = append(w.Now.Jobs, status.Job{Name: name})
		}
		return w
	}
	servers := []*watched{server("train", 3), server("val", 1), server("val", 2), server("", 0)}
	markTwins(servers)
	for k, want := range []bool{false, true, true, false} {
		if servers[k].Twin != want {
			t.Errorf("server %d: has a twin is %v, want %v", k, servers[k].Twin, want)
		}
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

// TestStatusInterrupted: Ctrl-C ends --watch without an error.
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
		e, err := attach.Register(filepath.Join(dir, "lcache"), socket, []string{"/cache"})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "lcache", name+".json"), `{"pid": `+itoa(e.PID)+`, "socket": "`+socket+`"}`)
		e.Remove()
	}
	var out bytes.Buffer
	if err := showStatus(context.Background(), statusOptions{json: true}, &out); err != nil {
		t.Fatal(err)
	}
	var all struct {
		Schema  int
		Servers []struct {
			Schema int
			Uptime float64 `json:"uptime_seconds"`
			Jobs   []struct{ Name string }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if all.Schema != 1 || len(all.Servers) != 2 || all.Servers[0].Schema != 1 || all.Servers[0].Uptime+all.Servers[1].Uptime != 22 || all.Servers[1].Jobs[0].Name != "train" {
		t.Errorf("got %+v of\n%s", all, out.String())
	}
}

// TestStatusOfTwins: two servers of one name are told apart by cache and process, and a third one of another name keeps its own.
func TestStatusOfTwins(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	for _, document := range []string{
		`{"schema": 1, "pid": 7, "cache": {"dirs": ["/a/train-1"]}, "jobs": [{"name": "train"}]}`,
		`{"schema": 1, "pid": 8, "cache": {"dirs": ["/b/train-2", "/c/train-2"]}, "jobs": [{"name": "train"}]}`,
		`{"schema": 1, "pid": 9, "cache": {"dirs": ["/a/val"]}, "jobs": [{"name": "val"}]}`,
	} {
		if _, err := attach.Register(filepath.Join(dir, "lcache"), documents(t, document, document), nil); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := showStatus(context.Background(), statusOptions{look: time.Millisecond}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"train (train-1, pid 7) · epoch 0", "train (train-2, pid 8) · epoch 0", "\nval · epoch 0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestStatusWatchText: pages elsewhere than on a terminal have an empty line between them; on one, each takes the last one's place.
func TestStatusWatchText(t *testing.T) {
	const clear, home, rest, below = "\x1b[H\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		o := statusOptions{watch: true, clear: terminal, look: time.Millisecond, every: time.Millisecond,
			socket: documents(t, firstDocument, secondDocument, secondDocument)}
		if err := showStatus(context.Background(), o, &out); err == nil {
			t.Error("the server is gone, and that is not said")
		}
		var pages []string
		for _, speed := range []string{"2.5 MB/s · 35 samples/s", "– · – samples/s"} {
			reads, waited, disk := "samples by index", "0 %", "read 0 + write 0 B/s"
			if speed[0] != '2' {
				reads, waited, disk = "no rank reads", "–", "read – + write –"
			}
			page := "train · epoch 0 · " + reads + "\n  requests waited " + waited + " · bottleneck: disk · 0 batches ready\n  " + speed + " · hits –\n"
			pages = append(pages, page+"  disk   "+disk+" · source 0 B\n  memory 0 B · 4 KiB pages · buffered\n")
		}
		want := pages[0] + "\n" + pages[1]
		if terminal {
			for i := range pages {
				pages[i] = strings.ReplaceAll(pages[i], "\n", rest+"\n") + below
			}
			want = clear + pages[0] + home + pages[1]
		}
		if out.String() != want {
			t.Errorf("terminal %v: got\n%q\nwant\n%q", terminal, out.String(), want)
		}
	}
}

// TestStatusWatchAll: of several servers one may end; the others are shown on, until there are none.
func TestStatusWatchAll(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	for _, socket := range []string{documents(t, firstDocument), documents(t, secondDocument, secondDocument, secondDocument)} {
		if _, err := attach.Register(filepath.Join(dir, "lcache"), socket, nil); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	err := showStatus(context.Background(), statusOptions{json: true, watch: true, every: time.Millisecond}, &out)
	if err == nil || !strings.HasPrefix(err.Error(), "no server of this user runs") {
		t.Errorf("got %v", err)
	}
	if a, b := strings.Count(out.String(), `"uptime_seconds":10`), strings.Count(out.String(), `"uptime_seconds":12`); a != 1 || b != 3 {
		t.Errorf("shown %d and %d times, want 1 and 3:\n%s", a, b, out.String())
	}
}
