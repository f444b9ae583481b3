package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestTakeOver: of a server that a training started the new one takes the place, whatever the training's environment. Of others it does not.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	embedded, other := newScript(t), newScript(t)
	embedded.ingested()
	other.env, other.work = embedded.env, embedded.work // one registry, and one cache
	cache := filepath.Join(embedded.work, "cache")
	fails := func(want string, words ...string) {
		t.Helper()
		var stderr bytes.Buffer
		cmd := other.lcache(words...)
		cmd.Stderr = &stderr
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != exitError || stderr.String() != "lcache serve: "+want+" [LC021]\n" {
			t.Errorf("lcache %s: %v: %q, want %q", strings.Join(words, " "), err, stderr.String(), want)
		}
	}
	embedded.start("an embedded server", embedded.lcache("serve", "--cache", "cache", "--exit-last", "1m", "--quiet", "--metrics", "none"))
	fails(fmt.Sprintf("%s is in use by process %d, the server that a training started: put this one in its place with lcache serve --take-over --cache %s", cache, embedded.server.Process.Pid, cache),
		"serve", "--cache", "cache")
	other.start("serve --take-over", other.lcache("serve", "--cache", "cache", "--take-over", "--socket", "cache/lcache.sock", "--quiet"))
	embedded.end("the embedded server", "ended")
	pid := other.server.Process.Pid
	fails(fmt.Sprintf("%s is in use by process %d, a server that no training started: stop it first, with lcache stop %d", cache, pid, pid), "serve", "--cache", "cache", "--take-over")
	other.end("serve --take-over", "stop")

	other.start("run", other.lcache("run", "--source", "data", "--cache", "cache", "--quiet", "--", "sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"))
	fails(fmt.Sprintf("%s is in use by process %d, whose server is a part of that program, as of lcache run: end it first", cache, other.server.Process.Pid), "serve", "--cache", "cache", "--take-over")
	other.end("run", "stop")
}
