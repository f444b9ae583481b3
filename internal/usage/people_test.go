package usage

import (
	"strconv"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestMessage(t *testing.T) {
	for s, want := range map[string]string{
		" a\nb\x1b[31m ":           `a\nb\x1b[31m`,
		"open caf\xe9: \"x\\xe9\"": `open caf\xe9: "x\xe9"`,
		"é \ufffd":                 "é \ufffd",
	} {
		if got := Message(s); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}

// FuzzName: a shown name can be printed and read back, so different names look different.
func FuzzName(f *testing.F) {
	for _, s := range []string{"plain", "caf\xe9", `caf\xe9`, "\\\xe9", "\\x\xe9", `\\xe9`, "a\nb", `a\nb`, `tar:/a\[1\].tar`, " é\u2028\U000e0001\ufffd ", `\u00a0\x5c`, "\xed\xb2\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := Name(s)
		for _, r := range shown {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q: %q has %q", s, shown, r)
			}
		}
		if !utf8.ValidString(shown) || readBack(t, shown) != s {
			t.Errorf("%q is shown as %s, which reads as %q", s, shown, readBack(t, shown))
		}
	})
}

// readBack replaces escapes by the bytes that they stand for.
func readBack(t *testing.T, shown string) string {
	return escapes.ReplaceAllStringFunc(shown, func(escape string) string {
		s, err := strconv.Unquote(`"` + escape + `"`)
		if err != nil {
			t.Fatalf("%q: %v", escape, err)
		}
		return s
	})
}
