package ingest

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"lcache/chunker"
	"lcache/internal/store/cache"
	"lcache/sample"
	"lcache/source"
)

// streamed reports whether a sample's shard has no random access.
func (in *run) streamed(index sample.Index) bool {
	s, ok := in.cache.Lister.(source.Sharded)
	if !ok {
		return false
	}
	m := in.cache.Manifest
	return s.Streamed(m.Shards()[m.ShardOf(index)])
}

// streams counts the shards without random access.
func (in *run) streams() (n int) {
	s, ok := in.cache.Lister.(source.Sharded)
	if !ok {
		return 0
	}
	for _, shard := range in.cache.Manifest.Shards() {
		if s.Streamed(shard) {
			n++
		}
	}
	return n
}

// checkStreams returns an error for a budget that does not hold all samples of shards without random access: reading the missing samples later would cost too much.
func (in *run) checkStreams() error {
	c := in.cache
	n := in.streams()
	if n == 0 {
		return nil
	}
	wanted := 0 // empty samples need no room
	for _, size := range c.Manifest.Sizes() {
		if size > 0 {
			wanted++
		}
	}
	if c.Record.Kept == wanted {
		return nil
	}
	f := c.Facts()
	f.Budget, f.Block = 0, uint64(in.o.Block)
	need := "a larger one"
	if z, err := chunker.Size(f); err == nil {
		need = fmt.Sprintf("--budget %dMiB or more", z.Budget>>20+1)
	}
	return fmt.Errorf("budget of %s holds %s of %s samples, and %s of %s can only be read front to back, so the missing samples can't be read later: give %s, or unpack these shards and let a server give ranges of them",
		humanize.Bytes(uint64(max(c.Record.Budget, 0))), humanize.Comma(int64(c.Record.Kept)), humanize.Comma(int64(wanted)), humanize.Comma(int64(n)), plural(len(c.Manifest.Shards())), need)
}

func plural(shards int) string {
	if shards == 1 {
		return "1 shard"
	}
	return humanize.Comma(int64(shards)) + " shards"
}

// keptStream reports whether a cache was made with --stream.
func keptStream(o Options) bool {
	if len(o.Dirs) == 0 {
		return false
	}
	was, err := cache.ReadRecord(o.Dirs[0])
	return err == nil && was.Stream && source.SameAs(o.Source, was.Source, was.Identity)
}
