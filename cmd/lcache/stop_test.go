package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestStopByPid: of two servers of one user the one with the pid ends, cleanly, and the other one serves on.
func TestStopByPid(t *testing.T) {
	t.Parallel()
	mine, other := newScript(t), newScript(t)
	other.env = mine.env // one registry
	for _, s := range []*script{mine, other} {
		s.ingested()
		s.start("serve", s.lcache("serve", "--cache", "cache", "--quiet"))
	}
	pid := mine.server.Process.Pid
	said, err := other.lcache("stop", strconv.Itoa(pid)).Output()
	want := fmt.Sprintf("stopped data · pid %d · %s\n", pid, filepath.Join(mine.work, "cache"))
	if err != nil || string(said) != want {
		t.Fatalf("lcache stop %d said %q, %v; want %q", pid, said, err, want)
	}
	// A process of this test that has ended is there until it is waited for.
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || !strings.Contains(string(stat), ") Z ") {
		t.Errorf("lcache stop returned while process %d ran: %s, %v", pid, stat, err)
	}
	mine.end("stopped by its pid", "ended")
	if text, err := other.lcache("status", "--socket", "cache/lcache.sock").Output(); err != nil {
		t.Errorf("the other server: %v: %s", err, text)
	}
	other.end("the other server", "stop")
}
