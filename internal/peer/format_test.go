package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"

	"lcache/sample"
)

var update = flag.Bool("update", false, "write testdata/frames.txt again")

// frames are one frame of each kind, as docs/protocol-peers.md shows them.
func frames() map[string][]byte {
	parcel := append(encodeParcel(7, []entry{{index: 5, length: 3, offset: 0, why: Kept, sum: 0x1122334455667788}, {index: 9, why: NotKept}}), 'a', 'b', 'c')
	return map[string][]byte{
		"1 LIST of samples 5 and 9, id 7, within 1 s":         (&list{7, 1000, []sample.Index{5, 9}}).encode(),
		"2 PARCEL of id 7 with sample 5 (abc); 9 is not kept": parcel,
		"3 DONE of id 7":                                       encodeDone(7),
		"4 MARK after 1000 bytes":                              encodeMark(1000),
		"5 WANT of a manifest from byte 16":                    encodeWant(16),
		"6 PIECE of a manifest of 19 bytes from byte 16 (xyz)": append(encodePiece(16, 19, 3), 'x', 'y', 'z'),
		"7 CANCEL of LIST 7":                                   encodeCancel(7),
	}
}

func TestGoldenFrames(t *testing.T) {
	const path = "testdata/frames.txt"
	all := frames()
	var b strings.Builder
	for k := range len(all) {
		for name, f := range all {
			if strings.HasPrefix(name, fmt.Sprint(k+1)) {
				fmt.Fprintf(&b, "# %s\n%s\n", name[2:], hex.EncodeToString(f))
			}
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != b.String() {
		t.Errorf("the frames are others than before (%v): peers of the version before would not understand them\n%s", err, b.String())
	}
}

// cut returns a frame in buffers of odd sizes, as it may arrive.
func cut(b []byte, at int) mem.BufferSlice {
	var s mem.BufferSlice
	for len(b) > at {
		s, b = append(s, mem.SliceBuffer(b[:at])), b[at:]
	}
	return append(s, mem.SliceBuffer(b))
}

// readAll reads a frame of any kind, and returns what writing it again gives.
func readAll(data mem.BufferSlice, samples int) (again []byte, err error) {
	r, kind, err := open(data, kindList, kindParcel, kindDone, kindMark, kindWant, kindPiece, kindCancel)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rest := func(head []byte, n int) ([]byte, error) {
		b := make([]byte, n)
		err := r.fill(b)
		return append(head, b...), err
	}
	switch kind {
	case kindList:
		l, err := r.list(samples)
		return l.encode(), err
	case kindParcel:
		id, entries, err := r.parcel(samples)
		if err != nil {
			return nil, err
		}
		n := 0
		for _, e := range entries {
			n += int(e.length)
		}
		return rest(encodeParcel(id, entries), n)
	case kindDone:
		id, err := r.done()
		return encodeDone(id), err
	case kindCancel:
		id, err := r.done()
		return encodeCancel(id), err
	case kindMark:
		n, err := r.mark()
		return encodeMark(n), err
	case kindWant:
		n, err := r.want()
		return encodeWant(n), err
	}
	offset, total, n, err := r.piece()
	if err != nil {
		return nil, err
	}
	return rest(encodePiece(offset, total, n), n)
}

func TestFramesInPieces(t *testing.T) {
	for name, f := range frames() {
		for at := 1; at <= len(f); at++ {
			if again, err := readAll(cut(f, at), 10); err != nil || !bytes.Equal(again, f) {
				t.Errorf("%s in buffers of %d bytes: %v", name, at, err)
			}
		}
	}
}

// A flipped bit, a byte less or a byte more never passes, except in the bytes of samples, which have sums of their own, and in the flags.
func TestDamagedFrames(t *testing.T) {
	for name, f := range frames() {
		for n := range len(f) {
			if _, err := readAll(cut(f[:n], 100), 10); !errors.Is(err, ErrFrame) {
				t.Errorf("%s, %d of %d bytes: %v", name, n, len(f), err)
			}
		}
		if _, err := readAll(cut(append(bytes.Clone(f), 0), 100), 10); !errors.Is(err, ErrFrame) {
			t.Errorf("%s with a byte more: %v", name, err)
		}
		for bit := range 8 * len(f) {
			b := bytes.Clone(f)
			b[bit/8] ^= 1 << (bit % 8)
			again, err := readAll(cut(b, 100), 10)
			isData := strings.Contains(name, "abc") && bit/8 >= len(f)-3 || strings.Contains(name, "xyz") && bit/8 >= len(f)-3
			if (err == nil) != isData || err != nil && !errors.Is(err, ErrFrame) {
				t.Errorf("%s with bit %d flipped was read as %x, %v", name, bit, again, err)
			}
		}
	}
	for name, b := range map[string][]byte{
		"a LIST of nothing":                   (&list{1, 1, nil}).encode(),
		"a LIST of too many":                  (&list{1, 1, make([]sample.Index, MostIndices+1)}).encode(),
		"a sample that does not exist":        (&list{1, 1, []sample.Index{10}}).encode(),
		"a PARCEL of nothing":                 encodeParcel(1, nil),
		"an absent sample with bytes":         append(encodeParcel(1, []entry{{why: NotKept, length: 1}}), 'a'),
		"an unknown reason":                   encodeParcel(1, []entry{{why: lastWhy + 1}}),
		"lengths whose sum is too large":      encodeParcel(1, []entry{{length: 1 << 31}, {index: 1, length: 1 << 31}}),
		"a PIECE beyond the end":              append(encodePiece(16, 18, 3), 'x', 'y', 'z'),
		"a PIECE at an offset of 64 bits":     append(encodePiece(1<<64-1, 3, 3), 'x', 'y', 'z'),
		"a frame that is larger than allowed": make([]byte, MostFrame+headBytes+1),
	} {
		if _, err := readAll(cut(b, 1000), 10); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, b := range frames() {
		f.Add(b, 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if len(b) >= headBytes {
			b = bytes.Clone(b)
			b[6], b[7] = 0, 0 // flags that this version does not know are ignored
		}
		// The sum is put right, so that the rest is tried.
		if len(b) >= headBytes && at%2 == 0 {
			body := b
			if b[5] == kindParcel || b[5] == kindPiece {
				for n := range b[headBytes:] {
					if again, err := readAll(cut(seal(bytes.Clone(b[:len(b)-n])), 50), 10); err == nil && !reflect.DeepEqual(again, seal(bytes.Clone(b[:len(b)-n]))) {
						t.Errorf("%x was read as %x", b, again)
					}
				}
			}
			b = seal(body)
		}
		again, err := readAll(cut(b, max(1, at&63)), 10)
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("%x was read as %x", b, again)
		}
		if err != nil && !errors.Is(err, ErrFrame) {
			t.Errorf("%x: %v", b, err)
		}
	})
}

// Whatever comes to its port, a server goes on, and keeps nothing of it.
func TestGarbageOnThePort(t *testing.T) {
	s := &shelf{n: 10, size: func(sample.Index) int { return 1000 }}
	_, address := serve(t, s, ServerOptions{})
	for k, b := range [][]byte{nil, {0}, []byte("GET / HTTP/1.1\r\n\r\n"), []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), bytes.Repeat([]byte{0xff}, 100_000), frames()["3 DONE of id 7"]} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.Write(b)
		if k%2 == 0 {
			defer c.Close() // stays open, silent
		} else {
			c.Close()
		}
	}
	h := newHeap()
	if _, err := client(t, 10, ClientOptions{}).Fetch(t.Context(), address, indices(0, 10), h); err != nil || len(h.got) != 10 {
		t.Errorf("%d samples, %v", len(h.got), err)
	}
}
