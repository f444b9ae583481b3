package source

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"lcache/source/internal/records"
	"lcache/source/internal/tarshard"
)

// With --stream, the shards of some kinds are decoded: no range of a shard has the bytes of its samples. A decoded shard is read as a compressed
// one is, from front to back. What it unpacks to are the parts of its samples, one after the other.

// decodeRules is the version of what shards decode to. Another one makes all positions in decoded shards invalid.
const decodeRules = 1

// decodes reports whether a source with these options decodes its shards.
func decodes(src string, opts Options) bool {
	kind, _, ok := records.Of(src)
	return ok && kind.Decodes && opts.Stream
}

// decode writes what a shard decodes to. t gets the samples, unless they are groups of members.
func (s *shards) decode(ctx context.Context, f records.Format, name string, o openShard, t *records.Table, w io.Writer) (err error) {
	if far, ok := s.store.(*shardObjects); ok && far.noRanges.Load() {
		return fmt.Errorf("its samples can't be found %s: download it", withoutRandom(name))
	}
	out := bufio.NewWriterSize(w, flowBlock)
	if s.hasMembers() {
		err = tarshard.UnpackZip(ctx, name, o, out)
	} else {
		err = f.(records.Decoder).Decode(ctx, name, o, t, out)
	}
	if err == nil {
		err = out.Flush()
	}
	return err
}

// decoded returns a reader of what a listed shard decodes to. Its Close waits until the decoder has ended.
func (s *shards) decoded(ctx context.Context, name string, o openShard) (io.ReadCloser, error) {
	var f records.Format
	if !s.hasMembers() {
		set := s.settings
		set.NoLabels = true
		var err error
		if f, err = s.kind.New(set); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	in, out := io.Pipe()
	r := &decodedShard{PipeReader: in, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		out.CloseWithError(s.decode(ctx, f, name, o, records.NewTable(-1), out))
	}()
	return r, nil
}

// decodedShard is a shard that is being decoded.
type decodedShard struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

func (d *decodedShard) Close() error {
	d.cancel()
	err := d.PipeReader.Close()
	<-d.done
	return err
}
