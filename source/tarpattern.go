package source

import (
	"fmt"
	"strconv"
	"strings"

	"lcache/source/internal/tarshard"
)

// TarPattern returns the tar: source for n files if most of them are tar shards, because a user who names a folder of
// shards means that. A README or an index in addition makes no difference. It returns "" if most are other files, if
// shards are at several depths, or if they are in a bucket and no braces name exactly them. name returns the name of
// a file.
func TarPattern(src string, n int, name func(i int) (string, error)) (string, error) {
	bucket := strings.HasPrefix(src, "s3://")
	if n == 0 || Scheme(src) != "" || IsRemote(src) && !bucket || strings.ContainsAny(src, `{[*?\`) {
		return "", nil
	}
	var end string
	var names []string
	levels, shards := 0, 0
	for i := range n {
		file, err := name(i)
		if err != nil {
			return "", err
		}
		its := tarshard.NameEnd(file)
		switch {
		case its == "":
			if others := i + 1 - shards; others > max(shards, mostOthers) { // so that TarPattern does not go through a listing of millions
				return "", nil
			}
			continue
		case shards == 0:
			end, levels = its, strings.Count(file, "/")
		case its != end || strings.Count(file, "/") != levels:
			return "", nil
		}
		shards++
		if bucket {
			names = append(names, file)
		}
	}
	if shards == 0 || n-shards > shards {
		return "", nil
	}
	if !bucket {
		return TarScheme + strings.TrimSuffix(src, "/") + "/" + strings.Repeat("*/", levels) + "*" + end, nil
	}
	braces := inBraces(names)
	if braces == "" {
		return "", nil
	}
	return TarScheme + strings.TrimSuffix(src, "/") + "/" + braces, nil
}

// mostOthers is the maximum number of other files that may come first in a folder of shards.
const mostOthers = 100

// inBraces combines names that differ in one number without a gap, such as train-000.tar to train-146.tar, into
// train-{000..146}.tar. It returns "" for other names.
func inBraces(names []string) string {
	first, last := names[0], names[len(names)-1]
	if strings.ContainsAny(first, `{}\*?[#`) {
		return ""
	}
	if len(names) == 1 {
		return first
	}
	start := 0
	for start < min(len(first), len(last)) && first[start] == last[start] {
		start++
	}
	for start > 0 && isDigit(first[start-1]) {
		start--
	}
	width := 0
	for start+width < len(first) && isDigit(first[start+width]) {
		width++
	}
	head, tail := first[:start], first[start+width:]
	from, err := strconv.Atoi(first[start : start+width])
	if err != nil {
		return ""
	}
	for i, name := range names {
		if name != fmt.Sprintf("%s%0*d%s", head, width, from+i, tail) {
			return ""
		}
	}
	return fmt.Sprintf("%s{%0*d..%0*d}%s", head, width, from, width, from+len(names)-1, tail)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
