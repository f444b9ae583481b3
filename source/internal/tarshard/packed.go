package tarshard

import (
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// mostWindow is the maximum memory for a stream of zstd: that of zstd's own default.
const mostWindow = 128 << 20

// packings are the extensions of compressed shards that can be read as a stream.
var packings = []struct{ ends, packing string }{{".gz", "gzip"}, {".tgz", "gzip"}, {".zst", "zstd"}, {".tzst", "zstd"}}

// Packing returns the compression of a shard, by its name: "gzip" or "zstd"; "": none, or one that [Unpack] does not
// know.
func Packing(name string) string {
	name = strings.ToLower(name)
	for _, p := range packings {
		if strings.HasSuffix(name, p.ends) {
			return p.packing
		}
	}
	return ""
}

// NameEnd returns the end of a shard's name: ".tar", or that of a compressed shard that [Unpack] knows, such as
// ".tar.gz" or ".tgz"; "": it is not the name of a shard.
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

// Unpack returns a reader of the tar in a compressed shard. Its Close frees memory; it does not close r. Concatenated
// streams count as one, as for the programs gzip and zstd.
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
