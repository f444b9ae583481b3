package server

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGroupReachesTheSocket: if members of a group can't reach the socket, Listen names the directory that stops them. Members may pass a directory that Listen
// makes.
func TestGroupReachesTheSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: can't give a directory to a group that this user is not in")
	}
	const team = 54321
	e := testEngine(t, nil)
	top, err := os.MkdirTemp("", "lcache-way-") // t.TempDir is in a folder that only its owner may pass
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	for _, c := range []struct {
		name       string
		mode       os.FileMode
		gid, group int
		stopped    string // below top
	}{
		{"their own", 0o710, team, team, ""},
		{"everybody's", 0o711, 0, team, ""},
		{"the owner's", 0o700, team, team, "the owner's"},
		{"another group's", 0o710, team + 1, team, "another group's"},
		{"the owner's, and no group", 0o700, 0, 0, ""},
	} {
		if err := os.Chmod(top, 0o711); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(top, c.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, -1, c.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		for _, below := range []string{"", "made"} {
			var log bytes.Buffer
			s, err := Listen(e, Options{Path: filepath.Join(dir, below, "s"), Mode: 0o660, AllowGroup: c.group, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			said := strings.Contains(log.String(), "dir=\""+filepath.Join(top, c.stopped)+"\"")
			if said != (c.stopped != "") || !said && log.Len() > 0 {
				t.Errorf("%s: stopped by %q, said %s", c.name, c.stopped, log.String())
			}
			if below == "" {
				continue
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(dir, below), &st); err != nil {
				t.Fatal(err)
			}
			if passable := int(st.Gid) == team && st.Mode&0o777 == 0o710; passable != (c.group == team) || !passable && st.Mode&0o777 != 0o700 {
				t.Errorf("%s: the directory made is of group %d, mode %o", c.name, st.Gid, st.Mode&0o777)
			}
		}
	}
}
