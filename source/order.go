package source

import (
	"cmp"
	"unicode/utf8"
)

// comparePython compares names as Python compares the results of os.listdir: by code point, with each byte that is
// not valid UTF-8 as U+DC00 + byte (PEP 383, surrogateescape). For valid names that is the order of their bytes. An
// invalid byte sorts after U+D7FF and before U+E000; the byte itself would not.
func comparePython(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) || a[i] < utf8.RuneSelf && b[i] < utf8.RuneSelf {
		// An ASCII byte is always one code point, whatever stands before it, so a first difference at an ASCII byte
		// decides. If one name is a prefix of the other, that is not enough: its last code point may be cut.
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

// hasExt reports whether a name ends in one of the extensions, which are in lower case. No extensions means all.
func hasExt(name string, exts []string) bool {
	for _, e := range exts {
		if len(name) >= len(e) && lowerASCII(name[len(name)-len(e):]) == e {
			return true
		}
	}
	return len(exts) == 0
}
