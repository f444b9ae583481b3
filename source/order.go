package source

import (
	"cmp"
	"unicode/utf8"
)

// comparePython orders names as Python orders the str that os.listdir makes of them: by code point, where each byte that is
// not valid UTF-8 counts as U+DC00 + byte (PEP 383, surrogateescape). For valid names that is the order of their bytes; an
// invalid byte sorts behind U+D7FF and before U+E000, which the byte itself would not.
func comparePython(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) || a[i] < utf8.RuneSelf && b[i] < utf8.RuneSelf {
		// An ASCII byte is always a code point of its own, whatever stands before it, so the first difference decides.
		// One name being the beginning of the other does not: its last code points may be cut.
		if i < len(a) && i < len(b) {
			return cmp.Compare(a[i], b[i])
		}
		if i == 0 || a[i-1] < utf8.RuneSelf {
			return cmp.Compare(len(a), len(b))
		}
	}
	for a != "" && b != "" {
		ra, na := decodePython(a)
		rb, nb := decodePython(b)
		if ra != rb {
			return cmp.Compare(ra, rb)
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

func decodePython(s string) (r rune, width int) {
	r, width = utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && width == 1 {
		r = 0xDC00 + rune(s[0])
	}
	return r, width
}

// hasExt says whether a name ends in one of these extensions, which are in lower case; none means all.
func hasExt(name string, exts []string) bool {
	for _, e := range exts {
		if len(name) >= len(e) && lowerASCII(name[len(name)-len(e):]) == e {
			return true
		}
	}
	return len(exts) == 0
}
