package peer

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/metadata"
)

// Manifest reads a peer's manifest of a dataset from an offset on. to gets its bytes in order; an error of to ends Manifest. most bounds the whole.
func (c *Client) Manifest(ctx context.Context, address string, offset, most uint64, to func(total uint64, b []byte) error) error {
	l, err := c.use(address)
	if err != nil {
		return err
	}
	defer c.unuse(l)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &stream{link: l, client: c}
	meta := metadata.AppendToOutgoingContext(ctx, metaProtocol, Protocol, metaPeer, c.o.ID, metaDataset, hex.EncodeToString(c.dataset[:]))
	stream, err := l.conn.NewStream(meta, &manifestDesc, manifestMethod)
	if err == nil {
		err = stream.SendMsg(plain(encodeWant(offset)))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		return s.explain(err)
	}
	silence := time.AfterFunc(10*c.o.Late, cancel)
	defer silence.Stop()
	whole := uint64(0)
	for isFirst := true; ; isFirst = false {
		var f frame
		err := stream.RecvMsg(&f)
		if err == io.EOF && (isFirst || offset == whole) { // the first: nothing is behind the offset
			return nil
		}
		if err == io.EOF {
			return fmt.Errorf("%s: %w: the manifest ends at %d of %d bytes", address, ErrFrame, offset, whole)
		}
		if err != nil {
			return s.explain(err)
		}
		silence.Reset(10 * c.o.Late)
		total, b, err := readPiece(f, offset)
		f.Free()
		switch {
		case err != nil:
			return s.explain(err)
		case !isFirst && total != whole:
			return fmt.Errorf("%s: %w: a manifest of %d bytes is one of %d now", address, ErrFrame, whole, total)
		case total > most:
			return fmt.Errorf("%s: %w: a manifest of %d bytes, and at most %d are allowed", address, ErrFrame, total, most)
		}
		whole = total
		if err := to(total, b); err != nil {
			return err
		}
		if offset += uint64(len(b)); offset == total {
			return nil
		}
	}
}

// readPiece reads a PIECE that must begin at an offset.
func readPiece(f frame, offset uint64) (total uint64, b []byte, err error) {
	r, _, err := open(f.BufferSlice, kindPiece)
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	at, total, n, err := r.piece()
	if err != nil {
		return 0, nil, err
	}
	if at != offset {
		return 0, nil, fmt.Errorf("%w: a piece at %d instead of %d", ErrFrame, at, offset)
	}
	b = make([]byte, n)
	return total, b, r.fill(b)
}
