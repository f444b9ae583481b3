package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lcache/cmd/lcache/internal/monitor"
	"lcache/internal/store/cachedir"
)

// lcache returns a command that runs in the folder of a script written in Go.
func (s *script) lcache(words ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], words...)
	cmd.Dir, cmd.Env, cmd.Stderr = s.work, s.env, s.t.Output()
	return cmd
}

// ingested makes a small cache in the folder.
func (s *script) ingested() {
	s.t.Helper()
	for i := range 10 {
		if err := patterned(filepath.Join(s.work, "data", "a", fmt.Sprint(i)), "3000"); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.lcache("ingest", "--source", "data", "--cache", "cache", "--quiet").Run(); err != nil {
		s.t.Fatal(err)
	}
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", url, answer.Status, err, text)
	}
	return string(text)
}

// TestServeMetrics: the metrics agree with lcache status of the same server.
func TestServeMetrics(t *testing.T) {
	s := newScript(t)
	s.ingested()
	cmd := s.lcache("serve", "--cache", "cache", "--quiet", "--metrics", "127.0.0.1:0")
	line := s.start("serve", cmd)
	defer s.end("serve", "stop")
	url := line[strings.LastIndex(line, " ")+1:]
	text := scrape(t, strings.TrimSpace(url))
	document, err := s.lcache("status", "--socket", "cache/lcache.sock", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Limit  float64          `json:"memory_limit_bytes"`
		Totals map[string]any   `json:"totals"`
		Jobs   []map[string]any `json:"jobs"`
	}
	if err := json.Unmarshal(document, &status); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"lcache_memory_limit_bytes": status.Limit, "lcache_samples": status.Jobs[0]["samples"].(float64)}
	for name, v := range status.Totals {
		if n, ok := v.(float64); ok && !strings.HasSuffix(name, "_seconds") {
			want["lcache_"+name] = n
		}
	}
	for name, n := range want {
		gauge, counter := fmt.Sprintf("\n%s{name=\"data\"} %v\n", name, n), fmt.Sprintf("\n%s_total{name=\"data\"} %v\n", name, n)
		if !strings.Contains(text, gauge) && !strings.Contains(text, counter) {
			t.Errorf("no line %q", strings.TrimSpace(gauge))
		}
	}
	if len(want) < 20 {
		t.Errorf("only %d numbers to compare", len(want))
	}
}

// TestRunMetrics: one endpoint for all sources of a run, by whatever process they are served, until the run ends.
func TestRunMetrics(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.ingested()
	// The first source's cache is served by a process of its own.
	home := filepath.Join(s.work, "root", cachedir.Folder(filepath.Join(s.work, "data"), cachedir.Listing{}))
	if err := os.Mkdir(filepath.Dir(home), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.work, "cache"), home); err != nil {
		t.Fatal(err)
	}
	s.start("serve", s.lcache("serve", "--cache", home, "--quiet"))
	defer s.end("serve", "stop")
	cmd := s.lcache("run", "--source", "train=data", "--source", "val="+filepath.Join("data", "a"), "--cache", "root", "--", "sh", "-c", "env | grep LCACHE_METRICS; echo ready; read line")
	cmd.Env = append(cmd.Env, "LCACHE_METRICS=127.0.0.1:0")
	cmd.Stderr = nil
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	url := ""
	for lines := bufio.NewScanner(logs); url == "" && lines.Scan(); {
		if after, found := strings.CutPrefix(lines.Text(), "metrics   "); found {
			url = after
		}
	}
	go io.Copy(io.Discard, logs) // so that a full pipe never blocks the run
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Errorf("%v: the command would listen where the run does: %s", err, line)
	}
	text := scrape(t, url)
	for _, want := range []string{`lcache_samples{name="train"} 10`, `lcache_samples{name="val"} 10`, `lcache_build_info{name="train",version=`, `lcache_build_info{name="val",version=`} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no line %s", want)
		}
	}
	in.Close()
	if err := cmd.Wait(); err == nil { // read finds no line
		t.Error("the command's exit code is lost")
	}
	if _, err := http.Get(url); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the run: %v", err)
	}
}

func TestMetricsAddressInUse(t *testing.T) {
	m, err := monitor.Listen(monitor.Options{Addr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Shutdown(context.Background())
	s := newScript(t)
	s.ingested()
	addr := strings.TrimSuffix(strings.TrimPrefix(m.URL(), "http://"), monitor.MetricsPath)
	var stderr bytes.Buffer
	cmd := s.lcache("serve", "--cache", "cache", "--metrics", addr)
	cmd.Stderr = &stderr
	err = cmd.Run()
	want := fmt.Sprintf("lcache serve: listen for metrics: listen tcp %s: bind: address already in use by process %d: choose another --metrics [LC033]\n", addr, os.Getpid())
	if cmd.ProcessState.ExitCode() != exitError || stderr.String() != want {
		t.Errorf("%v: %s", err, stderr.String())
	}
}

// TestOtherUsers: members of --socket-group are served, others are not, whatever the mode of the socket. To the server, a process of
// another user that requests the status is like a training process of that user.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: can't start a process of another user")
	}
	t.Parallel()
	const nobody, team, own = 65534, 54321, 54322
	s := newScript(t)
	s.ingested()
	for _, c := range []struct {
		name   string
		flags  []string
		gid    uint32
		groups []uint32
		want   string
	}{
		{"a member", []string{"--socket-group", "54321"}, team, nil, "data · epoch 0"},
		{"a member by a supplementary group", []string{"--socket-group", "54321"}, own, []uint32{own, team}, "data · epoch 0"},
		{"no member", []string{"--socket-group", "54321"}, own, nil, "is another user's, and you may not connect"},
		{"no member, but an open socket", []string{"--socket-group", "54321", "--socket-mode", "0666"}, own, nil, "user 65534 may not use this server of user 0"},
		{"an open socket alone", []string{"--socket-mode", "0666"}, team, nil, "user 65534 may not use this server of user 0"},
		{"nothing said", nil, team, nil, "is another user's, and you may not connect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "lcache-test-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			if err := os.Chmod(dir, 0o711); err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(dir, "s")
			s.t = t
			s.start("serve", s.lcache(append([]string{"serve", "--cache", "cache", "--quiet", "--socket", socket}, c.flags...)...))
			defer s.end("serve", "stop")
			asks := exec.Command("/proc/self/exe", "status", "--socket", socket) // where the test's binary lies may be root's alone
			asks.Env, asks.Dir = s.env, "/"
			asks.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: c.gid, Groups: c.groups}}
			if said, err := asks.CombinedOutput(); !strings.Contains(string(said), c.want) {
				t.Errorf("%v: %s, want %s", err, said, c.want)
			}
		})
	}
}
