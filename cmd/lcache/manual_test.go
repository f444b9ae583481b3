package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestManual: each command that --help shows has a page with all of its flags, and mandoc finds nothing wrong with it.
func TestManual(t *testing.T) {
	defer func(v, c, d string) { version, commit, date = v, c, d }(version, commit, date)
	version, commit, date = "1.2.3", strings.Repeat("ab", 20), "2026-11-26"
	dir := t.TempDir()
	var out, errs bytes.Buffer
	if code := run([]string{"manual", dir}, &out, &errs); code != exitDone || out.Len()+errs.Len() > 0 {
		t.Fatalf("manual ended with %d: %s%s", code, out.String(), errs.String())
	}
	want := 0
	for _, cmd := range everyCommand() {
		if cmd.Hidden || cmd.Name() == "help" {
			continue
		}
		want++
		page, err := os.ReadFile(filepath.Join(dir, pageName(cmd)+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if head, _, _ := strings.Cut(string(page), "\n"); !strings.Contains(head, `1 "2026-11-26" "lcache 1.2.3"`) {
			t.Errorf("%s begins with %s", pageName(cmd), head)
		}
		cmd.InheritedFlags() // adds them to Flags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if n := strings.Count(string(page), roff("--"+f.Name)); n == 0 && !f.Hidden && f.Name != "version" {
				t.Errorf("%s lacks --%s", pageName(cmd), f.Name)
			}
		})
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) != want {
		t.Fatalf("%d pages, want %d (%v)", len(pages), want, err)
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed: the pages were not checked for errors")
	}
	if out, err := exec.Command(mandoc, append([]string{"-Tlint"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("mandoc -Tlint: %v\n%s", err, out)
	}
}

func TestManualRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	for want, args := range map[string][]string{"the directory": {"manual"}, "not a directory": {"manual", file}} {
		var out, errs bytes.Buffer
		if code := run(args, &out, &errs); code == exitDone || !strings.Contains(errs.String(), want) {
			t.Errorf("%v ended with %d: %s", args, code, errs.String())
		}
	}
}

func TestVersionText(t *testing.T) {
	defer func(v, c, d string) { version, commit, date = v, c, d }(version, commit, date)
	for _, tt := range []struct{ version, commit, date, want string }{
		{"0.1.0", strings.Repeat("ab", 20), "2026-11-26", "0.1.0 (commit abababababab, 2026-11-26, go"},
		{"0.1.0", strings.Repeat("ab", 20) + "-dirty", "2026-11-26", "0.1.0 (commit abababababab-dirty, 2026-11-26, go"},
		{"0.1.0", "", "", "0.1.0 (go"},
	} {
		version, commit, date = tt.version, tt.commit, tt.date
		if got := versionText(); !strings.HasPrefix(got, tt.want) {
			t.Errorf("got %q, want %q…", got, tt.want)
		}
	}
}
