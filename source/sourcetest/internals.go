package sourcetest

import (
	"context"

	"lcache/source/internal/object"
	"lcache/source/internal/tarshard"
)

// Expand returns the shards of a pattern.
func Expand(pattern string) ([]string, error) { return tarshard.Expand(pattern) }

// IsGzip reports whether a shard of this name is packed by gzip.
func IsGzip(path string) bool { return tarshard.Packing(path) == "gzip" }

// Moved tells the caller of a source's read that bytes have come, as a source over a network does.
func Moved(ctx context.Context) { object.Moved(ctx) }
