// Package attachtest stands in for a server in tests of its clients. It answers the frames of one connection with given bytes, right or wrong,
// and does not interpret them.
package attachtest

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// Document is the type of an answer that is a JSON document.
const Document = 129

// Frame is one frame of the protocol.
func Frame(version, kind byte, request uint32, body string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(8+len(body)))
	b = append(b, version, kind, 0, 0)
	return append(binary.LittleEndian.AppendUint32(b, request), body...)
}

// Answer listens on path and answers each frame of one connection with the next of answers.
func Answer(t *testing.T, path string, answers ...[]byte) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		l.Close() // a second client is refused, and does not wait for an answer
		defer conn.Close()
		for _, a := range answers {
			head := make([]byte, 12)
			if _, err := io.ReadFull(conn, head); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, int64(binary.LittleEndian.Uint32(head))-8); err != nil {
				return
			}
			if _, err := conn.Write(a); err != nil {
				return
			}
		}
	}()
}
