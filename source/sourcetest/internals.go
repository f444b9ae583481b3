package sourcetest

import (
	"context"

	"lcache/source/internal/object"
	"lcache/source/internal/tarshard"
)

// Expand returns the shards of a pattern.
func Expand(pattern string) ([]string, error) { return tarshard.Expand(pattern) }

// IsGzip reports whether a shard of this name is compressed with gzip.
func IsGzip(path string) bool { return tarshard.Packing(path) == "gzip" }

// Moved reports to the caller of a read that bytes have arrived, as a network source does.
func Moved(ctx context.Context) { object.Moved(ctx) }
