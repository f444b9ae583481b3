package usage

import (
	"fmt"
	"strings"
)

// ShellWord writes a word so that a shell reads it as that word: in single quotes where it needs them; as $'…' where it can't be printed.
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

// shellEscaped is what stands within $'…', as bash, ksh, zsh and POSIX of 2024 read it.
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
