package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/internal/errcode"
)

// silentServer accepts connections and never answers, as a stopped process does.
func silentServer(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "silent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return socket
}

func register(t *testing.T, sockets ...string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	for _, socket := range sockets {
		if _, err := attach.Register(filepath.Join(dir, "lcache"), socket, []string{"/cache"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSilentServers: servers that do not answer are named, and the others are shown. The wait is that for one server, however many are silent.
func TestSilentServers(t *testing.T) {
	inCluster := `{"schema": 1, "pid": 7, "cache": {"dirs": ["/a/train-1"]}, "jobs": [{"name": "train"}], "cluster": {"state": "alone", "listen": "10.0.0.1:7747", "peers": [{"host": "gpu-01", "state": "ok"}]}}`
	first, second := silentServer(t), silentServer(t)
	within := func(what string, begun time.Time) {
		t.Helper()
		if took := time.Since(begun); took > 2*attach.FoundDeadline { // one after the other would take at least that
			t.Errorf("%s took %v", what, took)
		}
	}

	register(t, first, documents(t, inCluster, inCluster), second)
	begun := time.Now()
	var out, warnings bytes.Buffer
	if err := showStatus(t.Context(), statusOptions{look: time.Millisecond}, &out); err != nil {
		t.Fatal(err)
	}
	within("status", begun)
	if !strings.Contains(out.String(), "train") || !strings.Contains(out.String(), "! the server at "+first) || !strings.Contains(out.String(), "! the server at "+second) {
		t.Errorf("status shows\n%s", out.String())
	}

	register(t, first, documents(t, inCluster), second)
	out.Reset()
	if err := showCluster(t.Context(), "", false, false, &out, &warnings); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "gpu-01") || strings.Count(warnings.String(), "has not answered") != 2 || !strings.Contains(warnings.String(), first) {
		t.Errorf("cluster shows\n%s\nand warns\n%s", out.String(), warnings.String())
	}

	register(t, first)
	errs := make(chan error, 2)
	go func() { errs <- showStatus(t.Context(), statusOptions{look: time.Millisecond}, new(bytes.Buffer)) }()
	go func() {
		errs <- showCluster(t.Context(), "/cache", false, false, new(bytes.Buffer), new(bytes.Buffer))
	}()
	for range 2 {
		err := <-errs
		if code, _ := errcode.Of(err); err == nil || code != errcode.NoServer || !strings.Contains(err.Error(), first) {
			t.Errorf("all servers are silent: %v", err)
		}
	}
}
