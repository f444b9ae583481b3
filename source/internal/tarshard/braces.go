package tarshard

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// MaxShards is the maximum number of names that a pattern may have.
const MaxShards = 1 << 20

// ErrBraces means that the braces of a pattern don't match.
var ErrBraces = errors.New("its braces don't match: each { needs a }, or write \\{ for a brace in a name")

// Expand returns all names of a pattern with braces, in order. It follows Python's braceexpand, which follows bash
// except for details: {000..146} has leading zeros, {0..9..3} a step, {a,b} is a list, and braces may
// be nested. A backslash escapes the character after it.
func Expand(pattern string) ([]string, error) {
	list, err := expand(pattern)
	if err != nil {
		return nil, err
	}
	for i, s := range list {
		list[i] = unescape(s)
	}
	return list, nil
}

// expand is Expand, but keeps the backslashes.
func expand(pattern string) ([]string, error) {
	list, start, depth := []string{""}, 0, 0
	for pos := 0; pos < len(pattern); pos++ {
		switch pattern[pos] {
		case '\\':
			pos++
		case '{':
			if depth == 0 {
				list, start = times(list, []string{pattern[start:pos]}), pos
			}
			depth++
		case '}':
			if depth--; depth < 0 {
				return nil, ErrBraces
			}
			if depth > 0 {
				continue
			}
			within, err := expression(pattern[start+1 : pos])
			if err != nil {
				return nil, err
			}
			if len(list)*len(within) > MaxShards {
				return nil, tooMany()
			}
			list, start = times(list, within), pos+1
		}
	}
	if depth != 0 {
		return nil, ErrBraces
	}
	return times(list, []string{pattern[min(start, len(pattern)):]}), nil
}

func tooMany() error { return fmt.Errorf("it names more than %d shards: check its braces", MaxShards) }

func times(heads, tails []string) []string {
	all := make([]string, 0, len(heads)*len(tails))
	for _, h := range heads {
		for _, t := range tails {
			all = append(all, h+t)
		}
	}
	return all
}

var (
	numbers = regexp.MustCompile(`^(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?$`)
	letters = regexp.MustCompile(`^([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?$`)
)

// expression expands the text between two braces.
func expression(text string) ([]string, error) {
	if m := numbers.FindStringSubmatch(text); m != nil {
		return numberRange(m[1], m[2], m[3])
	}
	if m := letters.FindStringSubmatch(text); m != nil {
		return letterRange(m[1][0], m[2][0], m[3])
	}
	items := split(text)
	if len(items) < 2 { // not a list: the braces are literal
		within, err := expand(text)
		if err != nil {
			return nil, err
		}
		return times(times([]string{"{"}, within), []string{"}"}), nil
	}
	var all []string
	for _, item := range items {
		within, err := expand(item)
		if err != nil {
			return nil, err
		}
		if all = append(all, within...); len(all) > MaxShards {
			return nil, tooMany()
		}
	}
	return all, nil
}

// split splits a list at its commas outside inner braces.
func split(text string) (items []string) {
	start, depth := 0, 0
	for pos := 0; pos < len(text); pos++ {
		switch text[pos] {
		case '\\':
			pos++
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth == 0 {
				items, start = append(items, text[start:pos]), pos+1
			}
		}
	}
	return append(items, text[start:])
}

func numberRange(from, to, by string) ([]string, error) {
	a, err1 := strconv.ParseInt(from, 10, 62)
	b, err2 := strconv.ParseInt(to, 10, 62)
	step, err3 := stepOf(by)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("its range {%s..%s} has a number that is too large", from, to)
	}
	width := 0
	if padded(from) || padded(to) {
		width = max(len(from), len(to))
	}
	if abs(b-a)/step >= MaxShards {
		return nil, tooMany()
	}
	var all []string
	for n := int64(0); n <= abs(b-a)/step; n++ {
		i := a + n*step
		if b < a {
			i = a - n*step
		}
		all = append(all, fmt.Sprintf("%0*d", width, i))
	}
	return all, nil
}

// padded reports whether a number is written with leading zeros.
func padded(n string) bool {
	digits := strings.TrimPrefix(n, "-")
	return len(digits) > 1 && digits[0] == '0'
}

func abs(n int64) int64 { return max(n, -n) }

func stepOf(by string) (int64, error) {
	if by == "" {
		return 1, nil
	}
	step, err := strconv.ParseInt(by, 10, 62)
	return max(step, 1), err
}

// alphabet is the order of letters in ranges: braceexpand has the capitals first, and nothing between Z and a.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func letterRange(from, to byte, by string) ([]string, error) {
	step, err := stepOf(by)
	if err != nil {
		step = int64(len(alphabet))
	}
	a, b := int64(strings.IndexByte(alphabet, from)), int64(strings.IndexByte(alphabet, to))
	var all []string
	for n := int64(0); n <= abs(b-a)/step; n++ {
		i := a + n*step
		if b < a {
			i = a - n*step
		}
		all = append(all, alphabet[i:i+1])
	}
	return all, nil
}

// unescape removes the escaping backslashes.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && s[i+1] != '\n' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
