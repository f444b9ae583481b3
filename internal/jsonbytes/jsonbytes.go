// Package jsonbytes is encoding/json for text that need not be UTF-8, such as names of files.
//
// [Marshal] writes a byte that is not UTF-8 as the escape \udcXX, a lone surrogate. encoding/json would write U+FFFD
// for each such byte, so that two names could become one. [Unmarshal] reads such escapes as bytes. Python's json
// reads them as the text that os.fsdecode returns for the same bytes (PEP 383, surrogateescape), and writes that text
// in the same way. All other text is written and read as by encoding/json, byte for byte. Fields, map keys and
// elements are covered, but not the output of a type's own MarshalJSON or MarshalText.
//
// The functions keep no state and may be called concurrently.
package jsonbytes

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// mark followed by two hex digits replaces a byte that is not UTF-8 in the text that encoding/json gets. Two marks
// replace a mark of the text. mark is a rune that no text should have, so that is rare.
const mark = "\U0010ffff"

// lost is the output of encoding/json for a byte that is not UTF-8. It writes U+FFFD itself unchanged.
var lost = []byte(`\ufffd`)

// Marshal returns the JSON of v.
func Marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil || !bytes.Contains(b, lost) {
		return b, err
	}
	copied := reflect.New(reflect.TypeOf(v)).Elem()
	copied.Set(reflect.ValueOf(v))
	walk{text: hide, raw: func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(mark), []byte(mark+mark)) }, copies: true}.value(copied)
	if b, err = json.Marshal(copied.Interface()); err != nil {
		return nil, err
	}
	return escape(b), nil
}

// MarshalIndent is Marshal with line breaks, as in json.MarshalIndent.
func MarshalIndent(v any, prefix, indent string) ([]byte, error) {
	b, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	err = json.Indent(&lines, b, prefix, indent)
	return lines.Bytes(), err
}

// Unmarshal parses JSON into the value that v points to.
func Unmarshal(b []byte, v any) error {
	if !bytes.Contains(b, []byte(`\ud`)) && !bytes.Contains(b, []byte(`\uD`)) {
		return json.Unmarshal(b, v)
	}
	if err := json.Unmarshal(hideEscapes(b), v); err != nil {
		return err
	}
	if to := reflect.ValueOf(v); to.Kind() == reflect.Pointer {
		walk{text: show, raw: escape}.value(to.Elem())
	}
	return nil
}

// hide replaces each byte that is not UTF-8.
func hide(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, mark) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(mark + hex.EncodeToString([]byte(s[:1])))
		case s[:n] == mark:
			b.WriteString(mark + mark)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// show is the inverse of hide.
func show(s string) string {
	if !strings.Contains(s, mark) {
		return s
	}
	return string(eachMark([]byte(s), func(to []byte, hidden byte) []byte { return append(to, hidden) }))
}

// escape replaces the hidden bytes in JSON by escapes.
func escape(b []byte) []byte {
	return eachMark(b, func(to []byte, hidden byte) []byte {
		return hex.AppendEncode(append(to, `\udc`...), []byte{hidden})
	})
}

// eachMark calls put to append each hidden byte, and copies the rest.
func eachMark(b []byte, put func(to []byte, hidden byte) []byte) []byte {
	var to []byte
	for {
		before, after, found := bytes.Cut(b, []byte(mark))
		if !found {
			return append(to, b...)
		}
		to, b = append(to, before...), after
		hidden, err := hex.DecodeString(string(b[:min(2, len(b))]))
		switch {
		case err == nil && len(hidden) == 1 && hidden[0] >= utf8.RuneSelf:
			to, b = put(to, hidden[0]), b[2:]
		default: // a mark of the text
			to, b = append(to, mark...), bytes.TrimPrefix(b, []byte(mark))
		}
	}
}

// hideEscapes replaces marks, and the escapes \udc80 to \udcff that are not half of a pair. Invalid JSON stays
// invalid.
func hideEscapes(b []byte) []byte {
	to := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := rune(-1), 1
		switch {
		case bytes.HasPrefix(b, []byte(mark)):
			r, n = []rune(mark)[0], len(mark)
		case b[0] == '\\' && len(b) > 1:
			if r, n = unit(b), 6; r < 0 {
				n = 2
			} else if pair := utf16.DecodeRune(r, unit(b[6:])); pair != utf8.RuneError {
				r, n = pair, 12
			}
		}
		switch {
		case string(r) == mark:
			to = append(to, mark+mark...)
		case r >= 0xdc80 && r <= 0xdcff:
			to = hex.AppendEncode(append(to, mark...), []byte{byte(r)})
		default:
			to = append(to, b[:n]...)
		}
		b = b[n:]
	}
	return to
}

// unit returns the number of the escape \uXXXX at the start of b, or -1.
func unit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
