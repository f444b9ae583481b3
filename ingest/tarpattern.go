package ingest

import (
	"path"
	"slices"
	"strings"

	"lcache/source"
)

// shardEnds are the ends of names that tar shards have.
var shardEnds = []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"}

// tarPattern returns the source that takes the samples out of a directory's n files, if each of these is a tar shard: people who have shards and name their folder mean
// that. "" if they are other files, or lie at several depths. name returns the name of a file.
func tarPattern(src string, n int, name func(i int) (string, error)) (string, error) {
	if n == 0 || strings.HasPrefix(src, source.TarScheme) || source.IsRemote(src) || strings.ContainsAny(src, `{[*?\`) {
		return "", nil
	}
	var end string
	levels := 0
	for i := range n {
		file, err := name(i)
		if err != nil {
			return "", err
		}
		base := path.Base(file)
		if i == 0 {
			at := slices.IndexFunc(shardEnds, func(end string) bool { return strings.HasSuffix(base, end) })
			if at < 0 {
				return "", nil
			}
			end, levels = shardEnds[at], strings.Count(file, "/")
		}
		if !strings.HasSuffix(base, end) || strings.Count(file, "/") != levels {
			return "", nil
		}
	}
	return source.TarScheme + strings.TrimSuffix(src, "/") + "/" + strings.Repeat("*/", levels) + "*" + end, nil
}
