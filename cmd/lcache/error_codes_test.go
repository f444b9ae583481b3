package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"lcache/internal/errcode"
	"lcache/internal/usage"
	"lcache/iouring"
	"lcache/logfile"
)

var codeAtEnd = regexp.MustCompile(` \[LC\d{3}\](\n|$)`)

// withoutCodes removes the codes at the ends of lines, for tests of the texts.
func withoutCodes(text string) string { return codeAtEnd.ReplaceAllString(text, "$1") }

// TestErrorCodes: the innermost cause decides the code of an error; the system's reason has precedence over "source-invalid".
func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want errcode.Code
	}{
		{usagef("no"), errcode.Usage},
		{usage.Errorf("no"), errcode.Usage},
		{&corruptError{errors.New("damage")}, errcode.DamageFound},
		{fmt.Errorf("open: %w", &logfile.BusyError{Dir: "d"}), errcode.InUse},
		{fmt.Errorf("open: %w", &iouring.UnavailableError{}), errcode.NoIOUring},
		{errcode.Errorf(errcode.SourceInvalid, "list: %w", fs.ErrPermission), errcode.NotPermitted},
		{errcode.Errorf(errcode.SourceInvalid, "list: %w", errors.New("a shard is truncated")), errcode.SourceInvalid},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, errcode.NotFound},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOTDIR}, errcode.NotADirectory},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}, errcode.NoSpace},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.EROFS}, errcode.ReadOnly},
		{errors.New("something"), errcode.Failed},
	} {
		if got := errorCode(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// TestErrorLines: a command that fails prints its code at the end of the line, and in a line of JSON where progress is JSON.
func TestErrorLines(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(filepath.Join(dir, "empty"), 0o700), os.Mkdir(filepath.Join(dir, "data"), 0o700),
		os.WriteFile(filepath.Join(dir, "data", "a"), []byte("a sample"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code errcode.Code
		kind string
	}{
		{"ingest --source DIR/none --cache DIR/c", errcode.NotFound, "not_found"},
		{"ingest --source DIR/file --cache DIR/c", errcode.SourceInvalid, ""},
		{"ingest --source DIR --cache DIR/c --budget x", errcode.Usage, "usage"},
		{"verify --cache DIR", errcode.NotACache, ""},
		{"ingest --source DIR/empty --flat --cache DIR/c", errcode.SourceEmpty, ""},
		{"ingest --source DIR/data --flat --cache DIR/data/c", errcode.OtherCache, ""},
		{"ingest --source DIR/data --flat --cache DIR/c --budget 1MB", errcode.BudgetTooSmall, ""},
		{"run --source DIR/data -- no-such-command-anywhere", errcode.NotRunnable, ""},
		{"plan --facts DIR/file", errcode.InputFile, ""},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"--progress", "json"}, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
		if run(args, &out, &errs) == exitDone {
			t.Errorf("%s: no error", c.args)
			continue
		}
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		if last := lines[len(lines)-1]; !strings.HasSuffix(last, fmt.Sprintf(" [%s]", c.code)) {
			t.Errorf("%s: %q does not end with %s", c.args, last, c.code)
		}
		want := fmt.Sprintf(`{"error":{"code":"%s"},"schema":1}`, c.code)
		if c.kind != "" {
			want = fmt.Sprintf(`{"error":{"code":"%s","kind":"%s"},"schema":1}`, c.code, c.kind)
		}
		if len(lines) < 2 || lines[len(lines)-2] != want {
			t.Errorf("%s: %q, want %s before the last line", c.args, lines, want)
		}
	}
}
