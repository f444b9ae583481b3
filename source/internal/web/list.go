package web

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"lcache/source/internal/object"
)

const (
	// MostList is the maximum size of a list in bytes.
	MostList = 1 << 30
	mostKey  = 64 << 10 // bytes of an address
)

// A Line of a list names one resource: its address, relative to the list's, and after tabs, if they are known, size,
// label and ETag.
type Line struct {
	Key   string
	Size  int64  // -1: not given
	Label string // "": not given
	Tag   string // with its quotes; "": not given
	Num   int    // of the line in the list, from 1
}

// Parse parses a list. It skips empty lines and lines that begin with #.
func Parse(list []byte) (lines []Line, err error) {
	begin := bytes.ToLower(bytes.TrimSpace(list[:min(len(list), 512)]))
	if bytes.HasPrefix(begin, []byte("<!doctype")) || bytes.HasPrefix(begin, []byte("<html")) {
		return nil, fmt.Errorf("it is a web page, not a list: check the address, and whether a proxy or a login stands between")
	}
	if bytes.IndexByte(begin, 0) >= 0 {
		return nil, fmt.Errorf("it is binary data, not a list: give the address of a text with one address a line")
	}
	text := string(bytes.TrimPrefix(list, []byte("\ufeff"))) // all names share this memory
	for n := 1; text != ""; n++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		l, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		l.Num = n
		lines = append(lines, l)
	}
	return lines, nil
}

func parseLine(line string) (l Line, err error) {
	if n := 1 + strings.Count(line, "\t"); n > 4 { // checked before the line is split, because there may be very many
		return l, fmt.Errorf("%d fields: want an address and, after tabs, SIZE, LABEL and ETAG", n)
	}
	fields := strings.Split(line, "\t")
	l.Key, l.Size = fields[0], -1
	switch {
	case l.Key == "":
		return l, fmt.Errorf("it has no address")
	case len(l.Key) > mostKey:
		return l, fmt.Errorf("its address has %d bytes, at most %d: shorten it", len(l.Key), mostKey)
	}
	if len(fields) > 1 && fields[1] != "" {
		if l.Size, err = strconv.ParseInt(fields[1], 10, 64); err != nil || l.Size < 0 || l.Size > math.MaxInt64/2 {
			return l, fmt.Errorf("its size is not a number: want an address and, after tabs, SIZE, LABEL and ETAG")
		}
	}
	if len(fields) > 2 {
		l.Label = strings.TrimSpace(fields[2])
	}
	if len(fields) > 3 && !strings.HasPrefix(fields[3], "W/") {
		if l.Tag = strings.Trim(fields[3], `"`); l.Tag != "" {
			l.Tag = `"` + l.Tag + `"`
		}
	}
	if err := object.CheckTag(l.Tag); err != nil {
		return l, err
	}
	return l, nil
}
