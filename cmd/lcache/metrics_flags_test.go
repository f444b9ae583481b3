package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetricsFile: serve and run write their metrics when they end.
func TestMetricsFile(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.ingested()
	cmd := s.lcache("serve", "--cache", "cache", "--quiet", "--metrics-file", "serve.prom")
	s.start("serve", cmd)
	s.end("serve", "stop")
	if out, err := s.lcache("run", "--source", "mine=data", "--cache", "root", "--quiet", "--metrics-file", "run.prom", "--", "true").Output(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for file, want := range map[string]string{"serve.prom": "\nlcache_samples{name=\"data\"} 10\n", "run.prom": "\nlcache_samples{name=\"mine\"} 10\n"} {
		text, err := os.ReadFile(filepath.Join(s.work, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v: no line %q", file, err, want)
		}
	}
}

// TestMetricsTokenIsNowhere: the token lets readers in, and is neither in the command's environment nor in what any process prints.
func TestMetricsTokenIsNowhere(t *testing.T) {
	t.Parallel()
	const token = "marked-0123456789-token"
	s := newScript(t)
	s.ingested()
	cmd := s.lcache("run", "--source", "data", "--cache", "root", "--page", "--log-format", "json", "--progress", "plain", "--", "sh", "-c", "env; tr '\\0' ' ' < /proc/$PPID/cmdline; echo; echo ready; read line; true")
	cmd.Env = append(cmd.Env, tokenVariable+"="+token, "LCACHE_METRICS_FILE="+filepath.Join(s.work, "file.prom"))
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
	url, said := "", ""
	lines := bufio.NewScanner(logs)
	for url == "" && lines.Scan() {
		said += lines.Text() + "\n"
		if after, found := strings.CutPrefix(lines.Text(), "metrics   "); found {
			url = after
		}
	}
	rest := make(chan string)
	go func() {
		text, _ := io.ReadAll(logs)
		rest <- string(text)
	}()
	printed := bufio.NewReader(out)
	for line := ""; line != "ready\n"; {
		if line, err = printed.ReadString('\n'); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		if said += line; strings.HasPrefix(line, "LCACHE_METRICS") {
			t.Errorf("the command has %s", line)
		}
	}
	for given, want := range map[string]int{"": http.StatusUnauthorized, token: http.StatusOK} {
		ask, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		ask.Header.Set("Authorization", "Bearer "+given)
		answer, err := http.DefaultClient.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if said += string(text); answer.StatusCode != want {
			t.Errorf("with the token %q: %s, want %d", given, answer.Status, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	document, err := s.lcache("status", "--json").Output()
	if err != nil {
		t.Error(err)
	}
	in.Close()
	last, _ := io.ReadAll(printed)
	said += string(document) + string(last) + <-rest
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if strings.Contains(said, token) || len(said) < 1000 {
		t.Errorf("somebody prints the token, or nothing was printed:\n%s", said)
	}
}

// TestLogFormat: each log message is one JSON document, with time, level and msg.
func TestLogFormat(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.ingested()
	cmd := s.lcache("serve", "--cache", "cache", "--log-format", "json", "--exit-idle", "10ms")
	var logs bytes.Buffer
	cmd.Stderr = &logs
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	messages := 0
	for line := range strings.Lines(logs.String()) {
		var m struct {
			Time, Level, Msg string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Time == "" || m.Level == "" || m.Msg == "" {
			t.Errorf("%v: %s", err, line)
		}
		messages++
	}
	if messages < 3 {
		t.Errorf("%d messages:\n%s", messages, logs.String())
	}
}

// TestBadMetricsFlags: one clear error for each, without the token.
func TestBadMetricsFlags(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	if err := os.WriteFile(filepath.Join(s.work, "short"), []byte("marked"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags []string
		env   string
		want  string
	}{
		{[]string{"--metrics-token-file", "short"}, "", "--metrics-token-file: short: the token has 6 characters: give 16 to 1024"},
		{[]string{"--metrics-token-file", "none"}, "", "--metrics-token-file: open none: no such file or directory"},
		{nil, "marked two words of it", "LCACHE_METRICS_TOKEN: the token must be one word"},
		{[]string{"--metrics-token-file", "short"}, "marked-0123456789", "--metrics-token-file and LCACHE_METRICS_TOKEN: give one of them"},
		{[]string{"--metrics-file", "none/file.prom"}, "", "its folder does not exist"},
		{[]string{"--log-format", "xml"}, "", "must be one of text, json"},
	} {
		cmd := s.lcache(append([]string{"serve", "--cache", "cache", "--metrics", "127.0.0.1:0"}, c.flags...)...)
		cmd.Env = append(cmd.Env, tokenVariable+"="+c.env)
		cmd.Stderr = nil
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "marked") {
			t.Errorf("%q %q: %v: %s, want %s", c.flags, c.env, err, out, c.want)
		}
	}
}
