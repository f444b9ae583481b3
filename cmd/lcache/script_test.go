package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/launch"
	"lcache/internal/testenv"
)

// Scripts in testdata/script run real processes. A paragraph is one command and its whole output:
//
//	$ lcache ingest --source data --cache cache       run; & instead of $: start a server and wait for its first line
//	[1]                                               its exit code, if not 0
//	> a line on stdout                                {…} stands for any text, a last line of {…} alone for any lines
//	2> a line on stderr
//
// Other lines prepare: file PATH TEXT, size PATH BYTES, dir PATH, mode PATH OCTAL, link PATH TARGET, remove PATH, damage PATH, set NAME=VALUE,
// disk PATH SIZE (a small file system, which needs root: without, the rest of the script is skipped), memory PATH (a folder in memory), stop (SIGTERM to the server,
// which must end with 0), kill (SIGKILL), ended (wait until the server has ended without a signal, with 0). Commands run in a folder of their own, $WORK.

// TestMain lets the test's own binary be lcache: a script's processes have real exit codes, signals and locks.
func TestMain(m *testing.M) {
	if os.Getenv("LCACHE_TEST_AS_COMMAND") == "1" {
		os.Exit(beCommand())
	}
	if os.Getenv("LCACHE_TEST_AS_LCACHE") == "1" || filepath.Base(os.Args[0]) == "lcache" {
		limitTime /= 20
		bundleEvery /= 20
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	// Under the race detector each process would wait for a second at its end, and there are hundreds.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	code := testenv.Run(m)
	os.RemoveAll(madeProgramDir)
	os.Exit(code)
}

func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := newScript(t)
			lines := strings.Split(string(text), "\n")
			for i := 0; i < len(lines); {
				i = s.step(path, lines, i)
			}
		})
	}
}

// script is a running one.
type script struct {
	t      *testing.T
	work   string
	env    []string
	server *exec.Cmd
}

func newScript(t *testing.T) *script {
	s := &script{t: t, work: diskDir(t)}
	s.env = append(launch.ChildEnvironment(os.Environ()), "LCACHE_TEST_AS_LCACHE=1", "NO_COLOR=1", "XDG_RUNTIME_DIR="+s.work, "XDG_CACHE_HOME="+filepath.Join(s.work, "xdg"))
	t.Cleanup(func() {
		if s.server != nil {
			s.server.Process.Kill()
			s.server.Wait()
		}
	})
	return s
}

// step does line i and returns the number of the next.
func (s *script) step(path string, lines []string, i int) int {
	line := lines[i]
	where := fmt.Sprintf("%s:%d", path, i+1)
	verb, rest, _ := strings.Cut(line, " ")
	name, text, _ := strings.Cut(rest, " ")
	file := filepath.Join(s.work, name)
	var err error
	switch {
	case line == "" || strings.HasPrefix(line, "#"):
	case verb == "$" || verb == "&":
		end := i + 1
		for end < len(lines) && lines[end] != "" {
			end++
		}
		s.command(where, verb, rest, lines[i+1:end])
		return end
	case verb == "file":
		if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
	case verb == "size":
		err = patterned(file, text)
	case verb == "dir":
		err = os.MkdirAll(file, 0o755)
	case verb == "mode":
		var mode uint64
		if mode, err = strconv.ParseUint(text, 8, 32); err == nil {
			err = syscall.Chmod(file, uint32(mode)) // with the sticky bit
		}
	case verb == "link":
		err = os.Symlink(strings.ReplaceAll(text, "$WORK", s.work), file)
	case verb == "remove":
		err = os.RemoveAll(file)
	case verb == "damage":
		err = damage(file)
	case verb == "disk":
		s.disk(file, text)
	case verb == "memory":
		s.memory(file)
	case verb == "set":
		s.env = append(s.env, strings.ReplaceAll(rest, "$WORK", s.work))
	case verb == "stop" || verb == "kill" || verb == "ended":
		s.end(where, verb)
	default:
		s.t.Fatalf("%s: not a line of a script: %q", where, line)
	}
	if err != nil {
		s.t.Fatalf("%s: %v", where, err)
	}
	return i + 1
}

// command runs one and compares. A server is started and compared by its first line.
func (s *script) command(where, verb, command string, want []string) {
	args := strings.Fields(strings.ReplaceAll(command, "$WORK", s.work))
	if len(args) == 0 || args[0] != "lcache" {
		s.t.Fatalf("%s: not lcache: %q", where, command)
	}
	cmd := exec.Command(os.Args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.work, s.env
	var stdout, stderr bytes.Buffer
	cmd.Stderr = &stderr
	if verb == "&" {
		stdout.WriteString(s.start(where, cmd))
		stderr.Reset()
		s.compare(where, command, want, 0, stdout.String(), "")
		return
	}
	cmd.Stdout = &stdout
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%s: %v", where, err)
	}
	s.compare(where, command, want, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String())
}

func (s *script) start(where string, cmd *exec.Cmd) string {
	if s.server != nil {
		s.t.Fatalf("%s: a server runs already", where)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stderr = s.t.Output()
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("%s: %v", where, err)
	}
	s.server = cmd
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatalf("%s: the server ended without a line: %v", where, err)
	}
	return line
}

func (s *script) end(where, verb string) {
	if s.server == nil {
		s.t.Fatalf("%s: no server runs", where)
	}
	switch verb {
	case "stop":
		s.server.Process.Signal(syscall.SIGTERM)
	case "kill":
		s.server.Process.Signal(syscall.SIGKILL)
	}
	stuck := time.AfterFunc(time.Minute, func() { s.server.Process.Kill() })
	err := s.server.Wait()
	if stuck.Stop(); verb != "kill" && err != nil {
		s.t.Errorf("%s: the server ended with %v", where, err)
	}
	s.server = nil
}

// compare checks a command's exit code and its two streams against the script.
func (s *script) compare(where, command string, want []string, exit int, stdout, stderr string) {
	code := 0
	var out, err []string
	for _, line := range want {
		switch {
		case strings.HasPrefix(line, "["):
			n, bad := strconv.Atoi(strings.Trim(line, "[]"))
			if bad != nil {
				s.t.Fatalf("%s: exit code %q", where, line)
			}
			code = n
		case line == ">" || strings.HasPrefix(line, "> "):
			out = append(out, strings.TrimPrefix(strings.TrimPrefix(line, ">"), " "))
		case line == "2>" || strings.HasPrefix(line, "2> "):
			err = append(err, strings.TrimPrefix(strings.TrimPrefix(line, "2>"), " "))
		default:
			s.t.Fatalf("%s: neither output nor exit code: %q", where, line)
		}
	}
	if exit != code {
		s.t.Errorf("%s: %s\nended with %d, want %d", where, command, exit, code)
	}
	if stderr = withoutCodes(stderr); !matches(stdout, out, s.work) || !matches(stderr, err, s.work) {
		s.t.Errorf("%s: %s\nsaid\n%s%swant\n%s%s", where, command, quoted("> ", stdout), quoted("2> ", stderr),
			quoted("> ", strings.Join(out, "\n")), quoted("2> ", strings.Join(err, "\n")))
	}
}

func quoted(prefix, text string) string {
	if text = strings.TrimSuffix(text, "\n"); text == "" {
		return ""
	}
	return prefix + strings.ReplaceAll(text, "\n", "\n"+prefix) + "\n"
}

var spaces = regexp.MustCompile(` +`)

var anything = regexp.MustCompile(regexp.QuoteMeta(regexp.QuoteMeta("{…}")))

// matches compares a text with lines in which {…} stands for anything.
func matches(text string, want []string, work string) bool {
	got := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		got = nil
	}
	if n := len(want); n > 0 && want[n-1] == "{…}" {
		if want = want[:n-1]; len(got) < len(want) {
			return false
		}
		got = got[:len(want)]
	}
	return slices.EqualFunc(got, want, func(g, w string) bool {
		g, w = spaces.ReplaceAllString(g, " "), spaces.ReplaceAllString(w, " ") // columns move with the length of $WORK
		w = strings.ReplaceAll(w, "$WORK", work)
		pattern := "^" + anything.ReplaceAllString(regexp.QuoteMeta(w), ".*") + "$"
		return regexp.MustCompile(pattern).MatchString(g)
	})
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		good bool
	}{
		{"", nil, true},
		{"a\n", nil, false},
		{"a (b)\n", []string{"a (b)"}, true},
		{"a 12 b\n", []string{"a {…} b"}, true},
		{"a 12 c\n", []string{"a {…} b"}, false},
		{"a    b\n", []string{"a  b"}, true},
		{"/w/x\n", []string{"$WORK/x"}, true},
		{"a\nb\nc\n", []string{"a", "{…}"}, true},
		{"b\n", []string{"a", "{…}"}, false},
		{"a\nb\n", []string{"a"}, false},
	} {
		if got := matches(c.text, c.want, "/w"); got != c.good {
			t.Errorf("%q and %q: %v, want %v", c.text, c.want, got, c.good)
		}
	}
}
