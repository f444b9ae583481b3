package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// scanner reads the records of a journal in one pass. It does not stop at damage: it skips bytes that are not a record, in steps of eight,
// until a record verifies again. So a page that was lost in the middle costs only its own records.
type scanner struct {
	f     *os.File
	seed  uint64
	limit int    // length of the longest record to accept
	buf   []byte // buf[pos:n] is read but not examined
	pos   int
	n     int
	off   int64 // of buf[0] in the file

	rec     record // the last record found; its indices are valid until the next call of next
	raw     []byte // its bytes, valid as long
	end     int64  // end of the last good record
	records int
	eof     bool
	err     error // of a read; bytes after it are ignored
}

var recordMagicBytes = []byte{recordMagic & 0xff, recordMagic >> 8 & 0xff, recordMagic >> 16 & 0xff, recordMagic >> 24}

func newScanner(f *os.File, begin int64, limit int, seed uint64) *scanner {
	return &scanner{f: f, seed: seed, limit: limit, buf: make([]byte, 1<<20), off: begin, end: begin}
}

// next finds the next record, or returns false at the end.
func (s *scanner) next() bool {
	for s.have(recordSize(0)) {
		n, err := recordLength(s.buf[s.pos:], s.limit)
		if err == nil && s.have(n) && decodeRecord(s.buf[s.pos:s.pos+n], &s.rec, s.seed) == nil {
			s.raw = s.buf[s.pos : s.pos+n]
			s.pos += n
			s.end = s.off + int64(s.pos)
			s.records++
			return true
		}
		s.skip()
	}
	return false
}

// skip moves at least eight bytes forward, to the next bytes that may be a record.
func (s *scanner) skip() {
	s.pos += 8
	for s.pos < s.n {
		i := bytes.Index(s.buf[s.pos:s.n], recordMagicBytes)
		switch {
		case i < 0:
			s.pos = max(s.pos, (s.n-4)&^7) // the magic may cross the end of the buffered bytes
			return
		case i%8 == 0:
			s.pos += i
			return
		}
		s.pos += (i + 7) &^ 7
	}
}

// have makes at least n bytes available at pos, if the file has them.
func (s *scanner) have(n int) bool {
	for s.n-s.pos < n && !s.eof {
		if s.pos > 0 {
			copy(s.buf, s.buf[s.pos:s.n])
			s.off, s.n, s.pos = s.off+int64(s.pos), s.n-s.pos, 0
		}
		if n > len(s.buf) {
			s.buf = append(s.buf, make([]byte, n-len(s.buf))...)
		}
		m, err := s.f.ReadAt(s.buf[s.n:], s.off+int64(s.n))
		s.n += m
		if err != nil {
			s.eof = true
			if !errors.Is(err, io.EOF) {
				s.err = fmt.Errorf("read journal at %d: %w", s.off+int64(s.n), err)
			}
		}
	}
	return s.n-s.pos >= n
}
