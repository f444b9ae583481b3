package records

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"lcache/internal/jsonbytes"
)

// jsonl:PATTERN has the lines of JSON Lines files. A sample is a line without its end (\n or \r\n). Lines with only spaces are none. With
// --label-field and --key a line is an object, whose fields are the label and the sample's name.

const (
	jsonlPart = "json"

	// mostObject is the maximum length of a line of which fields are needed.
	mostObject = 16 << 20

	// mostScalar is the maximum length of a line that is not an object, a list or a text.
	mostScalar = 64
)

type jsonl struct {
	PatternShards
	label, key string // fields; "": none
}

func newJSONL(set Settings) (Format, error) {
	f := &jsonl{label: set.LabelField, key: set.Key}
	if set.NoLabels {
		f.label = ""
	}
	return f, nil
}

// Index implements [Format].
func (f *jsonl) Index(ctx context.Context, _ Files, _ string, o Object, t *Table) error {
	return f.read(ctx, bufio.NewReaderSize(&objectReader{ctx: ctx, o: o}, o.Piece()), t)
}

// IndexStream implements [Sequential].
func (f *jsonl) IndexStream(ctx context.Context, _ string, r io.Reader, t *Table) error {
	return f.read(ctx, bufio.NewReaderSize(r, 1<<20), t)
}

func (f *jsonl) read(ctx context.Context, from *bufio.Reader, t *Table) error {
	if _, err := t.Part(jsonlPart); err != nil {
		return err
	}
	start, err := jsonlStart(from)
	if err != nil {
		return err
	}
	most := mostScalar
	if f.label != "" || f.key != "" {
		most = mostObject
	}
	l := line{number: 1, start: start, most: most}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk, err := from.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		l.add(chunk)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if e := f.addLine(&l, t); e != nil {
			return fmt.Errorf("line %d, at byte %d: %w", l.number, l.start, e)
		}
		if err == io.EOF {
			return nil
		}
		l = line{number: l.number + 1, start: l.start + l.size, most: most, kept: l.kept[:0]}
	}
}

// jsonlStart returns the position of the first line, which is after a byte order mark.
func jsonlStart(from *bufio.Reader) (int64, error) {
	head, err := from.Peek(8)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if err := packed(head); err != nil {
		return 0, err
	}
	if bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
		return 0, errors.New("it is UTF-16: convert it to UTF-8")
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		_, err := from.Discard(3)
		return 3, err
	}
	return 0, nil
}

// line is what is known of a line, which may be longer than memory should hold.
type line struct {
	number      int   // from 1 on
	start       int64 // in the shard
	size        int64 // with its end
	most        int   // bytes to keep
	kept        []byte
	first, last byte // that are not spaces; 0: there is none
	tail        [2]byte
}

const spaces = " \t\r\n"

func (l *line) add(chunk []byte) {
	l.size += int64(len(chunk))
	if room := l.most - len(l.kept); room > 0 {
		l.kept = append(l.kept, chunk[:min(room, len(chunk))]...)
	}
	for _, b := range chunk[max(0, len(chunk)-2):] {
		l.tail = [2]byte{l.tail[1], b}
	}
	if l.first == 0 {
		if rest := bytes.TrimLeft(chunk, spaces); len(rest) > 0 {
			l.first = rest[0]
		}
	}
	if rest := bytes.TrimRight(chunk, spaces); len(rest) > 0 {
		l.last = rest[len(rest)-1]
	}
}

// end returns the length of the line's end.
func (l *line) end() int64 {
	switch {
	case l.tail == [2]byte{'\r', '\n'}:
		return 2
	case l.tail[1] == '\n':
		return 1
	}
	return 0
}

// check returns an error for a line that can't be JSON. It does not parse the line.
func (l *line) check() error {
	want := byte(0)
	switch l.first {
	case '{':
		want = '}'
	case '[':
		want = ']'
	case '"':
		want = '"'
	default:
		if l.size > mostScalar || !json.Valid(l.kept) {
			return fmt.Errorf("it is not JSON: it begins with %s", strconv.QuoteToASCII(string(l.kept[:min(len(l.kept), 16)])))
		}
		return nil
	}
	if l.last != want {
		return fmt.Errorf("it begins with %c and does not end with %c: the file is truncated, or its JSON has several lines (write one value a line, as jq -c does)", l.first, want)
	}
	return nil
}

// addLine adds a line that is not empty.
func (f *jsonl) addLine(l *line, t *Table) error {
	if l.first == 0 {
		return nil
	}
	if err := l.check(); err != nil {
		return err
	}
	key, label := "", int32(0)
	if f.label != "" || f.key != "" {
		if l.size > mostObject {
			return fmt.Errorf("it has %d bytes, and lcache reads fields only of lines up to 16 MiB: leave out --label-field and --key", l.size)
		}
		var err error
		if key, label, err = f.fields(l.kept); err != nil {
			return err
		}
	}
	return t.Add(key, label, Cell{Off: l.start, Size: l.size - l.end()})
}

// fields returns the name and the label of a line. If a field comes twice, the last one counts.
func (f *jsonl) fields(text []byte) (key string, label int32, err error) {
	var keyText, labelText []byte
	err = eachField(text, func(name string, value []byte) {
		if name == f.key {
			keyText = value
		}
		if name == f.label {
			labelText = value
		}
	})
	if err != nil {
		return "", 0, err
	}
	if f.label != "" {
		if labelText == nil {
			return "", 0, fmt.Errorf("it has no field %s: correct --label-field", clip(f.label))
		}
		n, err := strconv.ParseInt(string(labelText), 10, 64)
		if err != nil || n < math.MinInt32 || n > math.MaxInt32 {
			return "", 0, fmt.Errorf("its field %s is %s, want an integer of 32 bits: correct --label-field, or give --labels", clip(f.label), clip(string(labelText)))
		}
		label = int32(n)
	}
	if f.key != "" {
		if keyText == nil {
			return "", 0, fmt.Errorf("it has no field %s: correct --key", clip(f.key))
		}
		if key, err = keyOf(keyText); err != nil {
			return "", 0, fmt.Errorf("its field %s is %s, want a text or an integer: correct --key", clip(f.key), clip(string(keyText)))
		}
	}
	return key, label, nil
}

// keyOf returns a value as a name.
func keyOf(value []byte) (key string, err error) {
	if value[0] != '"' {
		_, err := strconv.ParseInt(string(value), 10, 64)
		return string(value), err
	}
	err = jsonbytes.Unmarshal(value, &key)
	if key == "" && err == nil {
		err = errors.New("it is empty")
	}
	return key, err
}

// errObject means that a line is not an object.
var errObject = errors.New("it is not an object of JSON, whose fields --label-field and --key name")

// eachField calls f with each field of an object, without parsing the values. Whether these are valid JSON is not checked.
func eachField(text []byte, f func(name string, value []byte)) error {
	at := skipSpaces(text, 0)
	if at == len(text) || text[at] != '{' {
		return errObject
	}
	if at = skipSpaces(text, at+1); at < len(text) && text[at] == '}' {
		return onlySpaces(text[at+1:])
	}
	for {
		end := stringEnd(text, at)
		if end < 0 {
			return errObject
		}
		raw := text[at:end]
		if at = skipSpaces(text, end); at == len(text) || text[at] != ':' {
			return errObject
		}
		at = skipSpaces(text, at+1)
		if end = valueEnd(text, at); end <= at {
			return errObject
		}
		value := text[at:end]
		name := string(raw[1 : len(raw)-1])
		if bytes.IndexByte(raw, '\\') >= 0 {
			if err := jsonbytes.Unmarshal(raw, &name); err != nil {
				return errObject
			}
		}
		f(name, value)
		if at = skipSpaces(text, end); at == len(text) {
			return errObject
		}
		switch text[at] {
		case '}':
			return onlySpaces(text[at+1:])
		case ',':
			at = skipSpaces(text, at+1)
		default:
			return errObject
		}
	}
}

func onlySpaces(text []byte) error {
	if skipSpaces(text, 0) < len(text) {
		return errObject
	}
	return nil
}

func skipSpaces(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}

// stringEnd returns the end of the string that begins at a position; -1: there is none.
func stringEnd(text []byte, at int) int {
	if at >= len(text) || text[at] != '"' {
		return -1
	}
	for at++; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return -1
}

// valueEnd returns the end of the value that begins at a position; -1: it has none.
func valueEnd(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			if at = stringEnd(text, at); at < 0 {
				return -1
			}
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return -1
}
