package tarshard

import (
	"strings"
	"testing"
)

// TestExpand has the results of Python's braceexpand 0.1.7.
func TestExpand(t *testing.T) {
	for pattern, want := range map[string]string{
		"plain.tar":          "plain.tar",
		"x-{000..003}.tar":   "x-000.tar x-001.tar x-002.tar x-003.tar",
		"{9..11}":            "9 10 11",
		"{07..10}":           "07 08 09 10",
		"{0..10..5}":         "0 5 10",
		"{10..0..-5}":        "10 5 0",
		"{0..3..0}":          "0 1 2 3",
		"{2..-1}":            "2 1 0 -1",
		"{-01..1}":           "-01 000 001",
		"{a..g..2}":          "a c e g",
		"{c..a}":             "c b a",
		"{Y..b}":             "Y Z a b",
		"i{,.bak}":           "i i.bak",
		"p{2.{5..6},3.{2,}}": "p2.5 p2.6 p3.2 p3.",
		"{a,b}-{0..1}":       "a-0 a-1 b-0 b-1",
		"{x}":                "{x}",
		"a{b{1,2}}":          "a{b1} a{b2}",
		`\{1,2\}`:            "{1,2}",
		`{1\,2,3}`:           "1,2 3",
		`{1\{2,3}`:           "1{2 3",
		`a\\b`:               `a\b`,
		"{1..a}":             "{1..a}",
		"{}":                 "{}",
		"":                   "",
	} {
		got, err := Expand(pattern)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v; want %s", pattern, got, err, want)
		}
	}
	for pattern, want := range map[string]string{
		"{1{2,3}":                   "braces don't match",
		"a}":                        "braces don't match",
		"{0..9999999}":              "more than 1048576 shards",
		"{0..9999}{0..9999}":        "more than 1048576 shards",
		"{0..99999999999999999999}": "too large",
	} {
		if got, err := Expand(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d names, %v; want %q", pattern, len(got), err, want)
		}
	}
}

// TestSplit has the results of webdataset 1.0.2, except for "./", which Split removes.
func TestSplit(t *testing.T) {
	for name, want := range map[string]string{
		"a.jpg": "a|jpg", "d/a.JPG": "d/a|jpg", "a.b/c.jpg": "a.b/c|jpg", "a/b/c.d.E": "a/b/c|d.e", "a..b": "a|.b", "a.": "a|", "x/a.": "x/a|",
		"a.\nb": "a|\nb", "d/.h.jpg": "d/|h.jpg", "d/e/.h": "d/e/|h", "d/..x": "d/|.x", "//.a": "//|a", "d.x/e/.h.j": "d.x/e/|h.j", "./a.jpg": "a|jpg",
		"a": "", ".h.jpg": "", "../.h": "", "d./.h.x": "", "a/b.c/d": "", "d.x/.h": "", "": "", "./.h.jpg": "",
		"__meta__": "", "__meta__/a.jpg": "", "____/a.jpg": "", "__m__.jpg": "__m__|jpg", "d/__m__/a.jpg": "d/__m__/a|jpg", "___/a.jpg": "___/a|jpg", "./__meta__/a.jpg": "",
	} {
		key, ext, ok := Split(name)
		got := ""
		if ok {
			got = key + "|" + ext
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
