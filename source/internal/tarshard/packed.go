package tarshard

import (
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// mostWindow is how much memory a stream of zstd may ask for: that of zstd's own default.
const mostWindow = 128 << 20

// packings are the endings of compressed shards that can be read as a stream.
var packings = []struct{ ends, packing string }{{".gz", "gzip"}, {".tgz", "gzip"}, {".zst", "zstd"}, {".tzst", "zstd"}}

// Packing is how a shard is compressed, by its name: "gzip" or "zstd". "": it is not, or not in a way that [Unpack] knows.
func Packing(name string) string {
	name = strings.ToLower(name)
	for _, p := range packings {
		if strings.HasSuffix(name, p.ends) {
			return p.packing
		}
	}
	return ""
}

// NameEnd is how the name of a shard ends: in ".tar", or as that of a compressed one that [Unpack] knows, such as ".tar.gz" and ".tgz". "": it is not the name of a shard.
func NameEnd(name string) string {
	if strings.HasSuffix(name, ".tar") {
		return ".tar"
	}
	for _, p := range packings {
		for _, end := range []string{".tar" + p.ends, p.ends} {
			if strings.HasPrefix(end, ".t") && strings.HasSuffix(name, end) {
				return end
			}
		}
	}
	return ""
}

// Unpack reads the tar in a compressed shard. Close frees its memory; it does not close r. Concatenated streams count as one, as for the programs gzip and zstd.
func Unpack(packing string, r io.Reader) (io.ReadCloser, error) {
	switch packing {
	case "gzip":
		return gzip.NewReader(r)
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("packing %q is not known", packing)
}
