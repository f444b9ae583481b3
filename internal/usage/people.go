package usage

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// UTF8 replaces each byte that is not UTF-8 by \x and two hex digits.
func UTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// Message formats a message for people: in UTF-8, on one line, and without control of the terminal. Runes that can't
// be printed are escaped as in Go.
func Message(s string) string { return printed(strings.TrimSpace(s)) }

// escapes matches the escapes that Message writes.
var escapes = regexp.MustCompile(`\\([abfnrtv]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})`)

// Name formats one name for people as Message does, but so that different names look different: spaces stay, and a
// backslash is \x5c if it would look like an escape.
func Name(s string) string { return printed(escapes.ReplaceAllString(s, `\x5c$1`)) }

// Names formats a list of names.
func Names(all []string, between string) string {
	shown := make([]string, len(all))
	for i, name := range all {
		shown[i] = Name(name)
	}
	return strings.Join(shown, between)
}

func printed(s string) string {
	var b strings.Builder
	for _, r := range UTF8(s) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := fmt.Sprintf("%q", r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}
