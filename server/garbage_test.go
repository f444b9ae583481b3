package server

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestGarbageEndsOnlyItsConnection(t *testing.T) {
	s := start(t, testEngine(t, nil), func(s *Server) { s.limits.waiting, s.limits.bytes = 4, 1<<10 })
	other := attach(t, s, "")
	many := []byte(nil)
	for i := range uint32(2000) {
		at := len(many)
		many = finish(append(begin(many, typeGet, 1000+i), getBody(3)...), at)
	}
	chunk := finish(append(begin(nil, typeChunk, 9), columnOf(0, 0, 0)...), 0)
	for name, b := range map[string][]byte{
		"http":                []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"zeros":               make([]byte, 64),
		"length over the cap": columnOf(maxFrame+1, 0, 0),
		"unknown type":        appendEmpty(nil, 77, 9),
		"an answer":           appendEmpty(nil, typeOK, 9),
		"HELLO again":         finish(append(begin(nil, typeHello, 9), `{"protocol":1}`...), 0),
		"short CHUNK":         finish(append(begin(nil, typeChunk, 9), 1, 2, 3), 0),
		"STATUS with a body":  finish(append(begin(nil, typeStatus, 9), 1), 0),
		"short RELEASE":       finish(append(begin(nil, typeRelease, 0), columnOf(5)...), 0),
		"short CANCEL":        finish(append(begin(nil, typeCancel, 0), columnOf(5)...), 0),
		"short COPIED":        finish(append(begin(nil, typeCopied, 9), columnOf(5)...), 0),
		"short LEND":          finish(append(begin(nil, typeLend, 9), columnOf(typeChunk)...), 0),
		"LEND for STATUS":     finish(append(begin(nil, typeLend, 9), columnOf(typeStatus, 0)...), 0),
		"LEND for half a GET": finish(append(begin(nil, typeLend, 9), columnOf(typeGet, 0, 0, 0, 0, 9)...), 0),
		"PUSH with more = 2":  finish(append(begin(nil, typePush, 9), columnOf(0, 0, 0, 2, 0)...), 0),
		"too many requests":   many,
		"too many bytes":      finish(append(begin(nil, typeGet, 9), getBody(make([]uint32, 300)...)...), 0),
		"version 2":           append(append(chunk[:4:4], 2), chunk[5:]...),
	} {
		c := attach(t, s, "")
		c.c.Write(b) // may fail half-way, once the server has seen enough
		var last failure
		for last.Kind == "" {
			f, err := readFrame(c.r, maxFrame)
			if err != nil {
				t.Errorf("%s: %v, want an ERROR", name, err)
				break
			}
			if f.kind == typeError {
				json.Unmarshal(f.body, &last)
				if last.Kind == "closing" || last.Kind == "cancelled" { // of requests behind the garbage
					last.Kind = ""
				}
			}
		}
		if last.Kind != "protocol" {
			t.Errorf("%s: %+v, want kind protocol", name, last)
		}
		for {
			if _, err := readFrame(c.r, maxFrame); err != nil {
				break
			}
		}
		other.batch(other.ask(typeGet, getBody(3))).check(t)
	}
}

func TestWrongHello(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	newer := finish(append(begin(nil, typeHello, 1), `{"protocol":1}`...), 0)
	newer[4] = 2
	for _, tt := range []struct {
		name, want string
		b          []byte
	}{
		{"another type", "first frame must be HELLO", appendEmpty(nil, typeStatus, 1)},
		{"newer in the header", "server speaks protocol 1, client 2", newer},
		{"newer in the JSON", "server speaks protocol 1, client 7", finish(append(begin(nil, typeHello, 1), `{"protocol":7}`...), 0)},
		{"no protocol", "client 0", finish(append(begin(nil, typeHello, 1), `{}`...), 0)},
		{"no JSON", "HELLO", finish(append(begin(nil, typeHello, 1), `hello`...), 0)},
		{"too long", "length", finish(append(begin(nil, typeHello, 1), make([]byte, maxHello+1)...), 0)},
	} {
		c := dial(t, s.Path())
		c.c.Write(tt.b)
		if said := c.fails(); said.Kind != "protocol" || !strings.Contains(said.Message, tt.want) {
			t.Errorf("%s: %+v, want %q", tt.name, said, tt.want)
		}
		c.end()
	}
	works(t, s)
}

func TestHalfFramesEndByTheirDeadline(t *testing.T) {
	s := start(t, testEngine(t, nil), func(s *Server) { s.limits.hello, s.limits.frame = 30*time.Millisecond, 30*time.Millisecond })
	idle := attach(t, s, "")
	silent := dial(t, s.Path())
	if said := silent.fails(); said.Kind != "protocol" || !strings.Contains(said.Message, "HELLO was not complete within 30ms") {
		t.Errorf("no HELLO: %+v", said)
	}
	silent.end()
	for n := 1; n < headerBytes+12; n += 5 {
		c := attach(t, s, "")
		c.write(finish(append(begin(nil, typeChunk, 9), columnOf(0, 0, 0)...), 0)[:n])
		if said := c.fails(); said.Kind != "protocol" || !strings.Contains(said.Message, "a frame was not complete within 30ms") {
			t.Errorf("%d bytes of a frame: %+v", n, said)
		}
		c.end()
	}
	idle.batch(idle.ask(typeGet, getBody(3))).check(t) // has been idle for longer than any limit
}

func TestClientThatReadsNothing(t *testing.T) {
	s := start(t, testEngine(t, nil), func(s *Server) { s.limits.write = 50 * time.Millisecond })
	watch := attach(t, s, "")
	c := attach(t, s, "")
	big := getBody(make([]uint32, 4000)...) // 80 KB of answer each
	for range 100 {
		c.next++
		if _, err := c.c.Write(finish(append(begin(nil, typeGet, c.next), big...), 0)); err != nil {
			break
		}
	}
	c.hangup()
	got := 0
	for {
		f, err := readFrame(c.r, maxFrame)
		if err != nil {
			break // completely sent answers can be read, then the stream ends
		}
		if f.kind == typeBatch {
			got++
		}
	}
	if got == 0 || got == 100 {
		t.Errorf("%d of 100 answers came", got)
	}
	watch.batch(watch.ask(typeGet, getBody(3))).check(t)
}

// A client may disconnect at any byte of its requests.
func TestCloseAtEveryByte(t *testing.T) {
	e := testEngine(t, nil)
	s := start(t, e, nil)
	script := finish(append(begin(nil, typeHello, 1), `{"protocol":1,"client":"t"}`...), 0)
	for _, f := range []frame{{kind: typeChunk, body: columnOf(0, 0, 0)}, {kind: typeGet, body: getBody(1, 2)}, {kind: typeRelease, body: releaseBody(1)}, {kind: typeBye}} {
		at := len(script)
		script = finish(append(begin(script, f.kind, uint32(at)), f.body...), at)
	}
	for n := range len(script) + 1 {
		c := dial(t, s.Path())
		c.write(script[:n])
		c.c.Close()
	}
	works(t, s)
	status := e.Status()
	if status.Jobs[0].ChunksDelivered == 0 {
		t.Error("no request was answered at all")
	}
}
