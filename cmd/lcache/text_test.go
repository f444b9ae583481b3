package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// same compares a text line by line, so that a failure shows the line.
func same(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Errorf("line %d\n got %q\nwant %q", i+1, a, b)
		}
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{joined("a", "", "b"), "a · b"},
		{short("8c1f02aa00000000"), "8c1f02aa"},
		{short("8c"), "8c"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	var b bytes.Buffer
	numbers(&b, "  ", [][]string{{"epoch", "MB/s"}, {"0", "1,234"}, {"all", "–"}})
	same(t, b.String(), "  epoch   MB/s\n  0      1,234\n  all        –\n")
}

func TestWriteJSON(t *testing.T) {
	for _, c := range []struct {
		report any
		want   string
	}{
		{map[string]int{"pid": 7}, "{\n  \"schema\": 1,\n  \"pid\": 7\n}\n"},
		{struct{}{}, "{\n  \"schema\": 1\n}\n"},
		{struct {
			Schema int `json:"schema"`
		}{1}, "{\n  \"schema\": 1\n}\n"},
	} {
		var b bytes.Buffer
		if err := writeJSON(&b, c.report); err != nil {
			t.Fatal(err)
		}
		same(t, b.String(), c.want)
		if !json.Valid(b.Bytes()) {
			t.Errorf("not JSON: %s", b.String())
		}
	}
	if err := writeJSON(&bytes.Buffer{}, func() {}); err == nil {
		t.Error("a function was encoded")
	}
}
