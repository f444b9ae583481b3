package source

import (
	"strings"

	"lcache/tarshard"
)

// TarPattern returns the source that takes the samples out of a directory's n files, if each of these is a tar shard: people who have shards and name their folder mean
// that. "" if they are other files, or lie at several depths. name returns the name of a file.
func TarPattern(src string, n int, name func(i int) (string, error)) (string, error) {
	if n == 0 || strings.HasPrefix(src, TarScheme) || IsRemote(src) || strings.ContainsAny(src, `{[*?\`) {
		return "", nil
	}
	var end string
	levels := 0
	for i := range n {
		file, err := name(i)
		if err != nil {
			return "", err
		}
		if i == 0 {
			end, levels = tarshard.NameEnd(file), strings.Count(file, "/")
		}
		if end == "" || tarshard.NameEnd(file) != end || strings.Count(file, "/") != levels {
			return "", nil
		}
	}
	return TarScheme + strings.TrimSuffix(src, "/") + "/" + strings.Repeat("*/", levels) + "*" + end, nil
}
