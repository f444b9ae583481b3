package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// writeBuffer is how much gRPC collects for one Write: as much as the kernel sends as one segment of its own.
const writeBuffer = 64 << 10

// readBuffer is how much gRPC reads ahead. crypto/tls has read a whole record before, and a second buffer would only add a copy.
func readBuffer(c *tls.Config) int {
	if c != nil {
		return 0
	}
	return 32 << 10
}

// batchedTLS is TLS that sends the records of one Write by one system call: crypto/tls sends each record, of 16 KiB at most, by one of its own.
type batchedTLS struct {
	credentials.TransportCredentials
	refused func(from net.Addr, err error) // is told of connections that a server does not accept; nil: nobody is
}

func newTLS(c *tls.Config) batchedTLS {
	c = c.Clone()
	c.DynamicRecordSizingDisabled = true // else the first records after a pause are small
	return batchedTLS{TransportCredentials: credentials.NewTLS(c)}
}

func (t batchedTLS) Clone() credentials.TransportCredentials {
	return batchedTLS{t.TransportCredentials.Clone(), t.refused}
}

func (t batchedTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	b := &batch{Conn: raw}
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, authority, b)
	if err != nil {
		return nil, nil, err
	}
	return &batchedConn{Conn: conn, batch: b}, info, nil
}

func (t batchedTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	b := &batch{Conn: raw}
	conn, info, err := t.TransportCredentials.ServerHandshake(b)
	if err != nil {
		if t.refused != nil && !isBroken(err) {
			t.refused(raw.RemoteAddr(), err)
		}
		return nil, nil, err
	}
	return &batchedConn{Conn: conn, batch: b}, info, nil
}

// isBroken reports whether a handshake ended because the connection did, as when a monitor looks whether the port is open.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// batch is a connection that keeps what is written between begin and flush.
type batch struct {
	net.Conn

	mu     sync.Mutex // also while records are sent, which keeps them in order. Close does not need it
	isOpen bool
	kept   []byte
}

func (b *batch) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isOpen = true
}

// Write keeps a record, or sends it. Records come from Write and Read of the TLS connection.
func (b *batch) Write(record []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isOpen {
		return b.Conn.Write(record)
	}
	b.kept = append(b.kept, record...)
	return len(record), nil
}

// flush sends what was kept.
func (b *batch) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isOpen = false
	_, err := b.Conn.Write(b.kept)
	b.kept = b.kept[:0]
	return err
}

// batchedConn is a TLS connection over a batch. gRPC writes from one goroutine at a time.
type batchedConn struct {
	net.Conn
	batch *batch
}

func (c *batchedConn) Write(b []byte) (int, error) {
	c.batch.begin()
	n, err := c.Conn.Write(b)
	if failed := c.batch.flush(); err == nil && failed != nil {
		return 0, failed
	}
	return n, err
}
