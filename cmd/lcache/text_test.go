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

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{bytesText(0), "0 B"},
		{bytesText(-1), "0 B"},
		{bytesText(999), "999 B"},
		{bytesText(138e9), "138 GB"},
		{bytesText(1.5e9), "1.5 GB"},
		{bytesText(2e6), "2 MB"},
		{binaryText(1 << 20), "1 MiB"},
		{binaryText(262144), "256 KiB"},
		{plural(1, "class", "classes"), "1 class"},
		{plural(1000, "class", "classes"), "1,000 classes"},
		{rate(250e6, 1), "250 MB/s"},
		{rate(250e6, 0), "–"},
		{perSecond(8900, 2), "4,450"},
		{perSecond(1, 0), "–"},
		{percent(0, 10), "0 %"},
		{percent(10, 10), "100 %"},
		{percent(2, 1000), "0.2 %"},
		{percent(42, 100), "42 %"},
		{percent(99999, 100000), "99.9 %"}, // all but one is not all
		{percent(1, 0), "–"},
		{duration(0), "0 s"},
		{duration(0.0004), "< 1 ms"},
		{duration(0.04), "40 ms"},
		{duration(0.42), "0.4 s"},
		{duration(12.4), "12 s"},
		{duration(59.99), "60 s"},
		{duration(552), "9 min 12 s"},
		{duration(160.06), "2 min 40 s"},
		{duration(11100), "3 h 5 min"},
		{ofTotal(1.41e9, 1.5e9), "1.41 / 1.50 GB"},
		{ofTotal(20e6, 512e6), "20 / 512 MB"},
		{ofTotal(5, 100), "5 / 100 B"},
		{bothRates(3.84e9, 3.824e9, 8), "read 480 + write 478 MB/s"},
		{bothRates(0, 3.3e6, 2), "read 0.0 + write 1.6 MB/s"},
		{bothRates(0, 0, 1), "read 0 + write 0 B/s"},
		{bothRates(1, 1, 0), "read – + write –"},
		{joined("a", "", "b"), "a · b"},
		{short("8c1f02aa00000000"), "8c1f02aa"},
		{short("8c"), "8c"},
		{shellWord("/nvme/train"), "/nvme/train"},
		{shellWord("/a b/it's"), `'/a b/it'\''s'`},
		{shellWord(""), "''"},
		{oneLine(" a\nb\x1b[31m "), `a\nb\x1b[31m`},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	var b bytes.Buffer
	figures(&b, "  ", [][]string{{"epoch", "MB/s"}, {"0", "1,234"}, {"all", "–"}})
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
