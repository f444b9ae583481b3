package usage

import (
	"fmt"
	"strings"
)

// ShellWord quotes a word for a shell: in single quotes if necessary, or as $'…' if it can't be printed.
func ShellWord(s string) string {
	if printed(s) != s {
		return "$'" + shellEscaped(s) + "'"
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("/._-,:+@%=", r) || r > 127)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// shellEscaped returns the text inside $'…' for bash, ksh, zsh and POSIX 2024.
func shellEscaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
