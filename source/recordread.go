package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"lcache/sample"
)

// recordsTogether is Together for records. Part k of each sample must come soon after part k of the sample before.
func recordsTogether(entries []sample.Entry, most uint64) int {
	before, held := entries[0], uint64(entries[0].Size)
	for n := 1; n < len(entries); n++ {
		e := entries[n]
		if e.Shard == nil || *e.Shard != *entries[0].Shard || len(before.Parts) > 0 && len(e.Parts) > 0 && len(e.Parts) != len(before.Parts) {
			return n
		}
		held += uint64(e.Size)
		for k, off := range e.Offsets {
			if len(before.Parts) == 0 {
				break
			}
			end := before.Offsets[k] + uint64(before.Parts[k].Size)
			if off < end || off-end > mostGap {
				return n
			}
			held += off - end
		}
		if held > most {
			return n
		}
		if len(e.Parts) > 0 {
			before = e
		}
	}
	return len(entries)
}

// recordGap is the maximum number of unused bytes between two ranges of a local file that are read in one piece.
const recordGap = 32 << 10

// piece is a range of a shard with parts of samples.
type piece struct {
	off, end uint64
	parts    []piecePart // in order
}

type piecePart struct {
	off uint64
	dst []byte
	sum uint64 // that the source says; 0: none
}

// pieceJobs is the maximum number of pieces that one read requests over a network at the same time.
const pieceJobs = 8

// readRecords reads samples of one shard, each into its part of dst. Parts that are close together are read in one
// piece. Pieces are read at the same time over a network that has ranges, so that each does not wait for the one before.
func (s *shards) readRecords(ctx context.Context, entries []sample.Entry, dst [][]byte) error {
	var parts []piecePart
	for i, e := range entries {
		if err := checkPlace(e, dst[i]); err != nil {
			return err
		}
		to := dst[i]
		for k, p := range e.Parts {
			if p.Size > 0 {
				parts = append(parts, piecePart{e.Offsets[k], to[:p.Size], p.Sum})
			}
			to = to[p.Size:]
		}
	}
	if len(parts) == 0 {
		return nil
	}
	shard := *entries[0].Shard
	o, err := s.openAt(ctx, shard)
	if err != nil {
		return err
	}
	defer o.close()
	gap := uint64(mostGap)
	if s.remote == nil {
		gap = recordGap
	}
	list := pieces(parts, gap, s.tail())
	if _, none := o.(noShard); s.remote == nil || len(list) == 1 || none || o.streamed() {
		for _, p := range list {
			if err := s.readPiece(ctx, o, shard, p); err != nil {
				return err
			}
		}
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pieceJobs)
	for _, p := range list {
		group.Go(func() error { return s.readPiece(ctx, o, shard, p) })
	}
	return group.Wait()
}

// tail returns the number of bytes after each part that its check needs.
func (s *shards) tail() uint64 {
	if s.kind.Check == nil || len(s.settings.Features) > 0 {
		return 0
	}
	return uint64(s.kind.Tail)
}

// pieces merges parts with at most gap bytes between them into pieces of at most MostTogether bytes. Each has tail bytes after its last part.
func pieces(parts []piecePart, gap, tail uint64) (list []piece) {
	slices.SortFunc(parts, func(a, b piecePart) int { return cmp.Compare(a.off, b.off) })
	for i, p := range parts {
		end := p.off + uint64(len(p.dst)) + tail
		if n := len(list); n > 0 {
			if last := &list[n-1]; p.off <= last.end+gap && max(end, last.end)-last.off <= MostTogether {
				last.end, last.parts = max(end, last.end), parts[i-len(last.parts):i+1]
				continue
			}
		}
		list = append(list, piece{p.off, end, parts[i : i+1]})
	}
	return list
}

func (s *shards) readPiece(ctx context.Context, o openShard, shard sample.Shard, p piece) error {
	tail := int(s.tail())
	if one := p.parts[0]; len(p.parts) == 1 && (tail == 0 || len(one.dst) > MostTogether) {
		if err := s.readAt(ctx, o, shard, one.dst, int64(one.off)); err != nil || tail == 0 {
			return cmp.Or(err, one.check())
		}
		after := make([]byte, tail)
		if err := s.readAt(ctx, o, shard, after, int64(one.off)+int64(len(one.dst))); err != nil {
			return err
		}
		return s.checkPart(one, one.dst, after)
	}
	buf, _ := s.spans.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer s.spans.Put(buf)
	n := int(p.end - p.off)
	*buf = slices.Grow((*buf)[:0], n)[:n]
	if err := s.readAt(ctx, o, shard, *buf, int64(p.off)); err != nil {
		return err
	}
	for _, part := range p.parts {
		from := (*buf)[part.off-p.off:]
		if tail > 0 {
			if err := s.checkPart(part, from[:len(part.dst)], from[len(part.dst):][:tail]); err != nil {
				return err
			}
		}
		copy(part.dst, from)
		if err := part.check(); err != nil {
			return err
		}
	}
	return nil
}

// check compares a part with the checksum that its source says.
func (p piecePart) check() error {
	if p.sum == 0 || sample.Sum(p.dst) == p.sum {
		return nil
	}
	return fmt.Errorf("byte %d: the xxh3 of %d bytes is %016x, but the index says %016x: copy or write the file again, or correct the index", p.off, len(p.dst), sample.Sum(p.dst), p.sum)
}

// checkPart compares a part with the bytes after it.
func (s *shards) checkPart(part piecePart, data, after []byte) error {
	if err := s.kind.Check(data, after); err != nil {
		return fmt.Errorf("byte %d: %w", part.off, err)
	}
	return nil
}
