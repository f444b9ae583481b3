package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/engine"
)

func TestSession(t *testing.T) {
	e := testEngine(t, nil)
	s := start(t, e, nil)
	c := attach(t, s, "")
	if c.info.Samples != testSamples || c.info.BatchSize != testBatch || c.info.World != 2 || c.info.Protocol != protocolVersion || c.info.Token == "" {
		t.Errorf("info %+v", c.info)
	}
	for epoch := range uint32(2) {
		var seen []uint32
		for rank := range uint32(2) {
			for b := uint32(0); ; b++ {
				f := c.ask(typeChunk, columnOf(epoch, rank, b))
				if f.kind == typeEnd {
					break
				}
				got := c.batch(f)
				got.check(t)
				seen = append(seen, got.indices...)
				c.send(typeRelease, releaseBody(got.lease))
			}
		}
		slices.Sort(seen)
		if seen = slices.Compact(seen); len(seen) != testSamples {
			t.Errorf("epoch %d: %d different samples, want %d", epoch, len(seen), testSamples)
		}
	}
	got := c.batch(c.ask(typeGet, getBody(5, 3, 119, 3, 0)))
	got.check(t)
	if !slices.Equal(got.indices, []uint32{5, 3, 119, 3, 0}) {
		t.Errorf("indices %v", got.indices)
	}
	names := c.ask(typeNames, columnOf(2, 61, 0))
	if names.kind != typeNamesAre || !strings.HasSuffix(string(names.body), "class-1/061.binclass-0/000.bin") {
		t.Errorf("names: type %d %q", names.kind, names.body)
	}
	if c.held() == 0 {
		t.Error("a batch is held and the status says none")
	}
	c.send(typeRelease, releaseBody(got.lease))
	c.send(typeRelease, releaseBody(got.lease)) // once more, and one that never was
	c.send(typeRelease, releaseBody(1<<60))
	if n := c.held(); n != 0 {
		t.Errorf("%d bytes held after RELEASE", n)
	}
}

func TestMemoryCantBeChanged(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	fd := int(c.memory.Fd())
	if _, err := unix.Write(fd, []byte("x")); err != unix.EBADF {
		t.Errorf("write: %v, want EBADF", err)
	}
	if err := unix.Ftruncate(fd, 0); err != unix.EINVAL && err != unix.EPERM {
		t.Errorf("ftruncate: %v, want EINVAL or EPERM", err)
	}
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != unix.EACCES && err != unix.EPERM {
		t.Errorf("mmap for writing: %v, want EACCES or EPERM", err)
	}
	m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err == nil {
		if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err == nil {
			t.Error("mprotect made the map writable")
		}
		unix.Munmap(m)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL; err != nil || seals&want != want {
		t.Errorf("seals %#x, %v, want at least %#x", seals, err, want)
	}
}

func TestLeasesOutliveTheConnection(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	got := c.batch(c.ask(typeGet, getBody(3, 4, 5)))
	c.c.CloseWrite()
	c.end()

	stranger := attach(t, s, "no such token")
	if stranger.info.Token == c.info.Token {
		t.Error("a wrong token was taken")
	}
	again := attach(t, s, c.info.Token)
	if again.info.Token != c.info.Token || again.info.Server != c.info.Server {
		t.Errorf("the session was not taken back: %+v", again.info)
	}
	if again.held() == 0 {
		t.Error("the lease ended with the connection")
	}
	again.send(typeRelease, releaseBody(got.lease))
	if n := again.held(); n != 0 {
		t.Errorf("%d bytes held after RELEASE over the second connection", n)
	}
}

func TestByeEndsLeases(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	watch := attach(t, s, "")
	c := attach(t, s, "")
	c.batch(c.ask(typeGet, getBody(3, 4, 5)))
	c.send(typeGet, getBody(6)) // never read
	c.batch(c.receive())
	if watch.held() == 0 {
		t.Error("nothing is held")
	}
	c.send(typeBye, nil)
	c.end()
	if n := watch.held(); n != 0 {
		t.Errorf("%d bytes held after BYE", n)
	}
}

func TestCancel(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	n := c.send(typeGet, getBody(3, 4, 5))
	c.batch(c.receive())
	c.send(typeCancel, columnOf(2, n, 4711))
	if held := c.held(); held != 0 {
		t.Errorf("%d bytes held after CANCEL of an answered GET", held)
	}
	// Together in one write, so that CANCEL mostly comes before the answers are made; each is answered whatever comes first.
	var b []byte
	for i := range uint32(50) {
		at := len(b)
		b = finish(append(begin(b, typeGet, 1000+i), getBody(3, 4)...), at)
	}
	at := len(b)
	b = append(begin(b, typeCancel, 0), columnOf(50)...)
	for i := range uint32(50) {
		b = append(b, columnOf(1000+i)...)
	}
	c.write(finish(b, at))
	for i := range uint32(50) {
		f := c.receive()
		if f.request != 1000+i || f.kind != typeBatch && f.kind != typeError {
			t.Fatalf("answer %d: request %d type %d", i, f.request, f.kind)
		}
		if f.kind == typeError && !strings.Contains(string(f.body), `"kind":"cancelled"`) {
			t.Errorf("answer %d: %s", i, f.body)
		}
	}
	if held := c.held(); held != 0 {
		t.Errorf("%d bytes held after all was cancelled", held)
	}
}

func TestPush(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	piece := func(epoch, rank, first, more uint32, sizes, indices []uint32) []byte {
		b := columnOf(epoch, rank, first, more, uint32(len(sizes)))
		return append(append(b, columnOf(sizes...)...), columnOf(indices...)...)
	}
	steps := []struct {
		name string
		body []byte
		kind string // of ERROR; "" for OK
	}{
		{"second piece first", piece(2, 0, 1, 0, []uint32{1}, []uint32{4}), "argument"},
		{"first of two", piece(2, 0, 0, 1, []uint32{2, 1}, []uint32{7, 8, 9}), ""},
		{"a piece for another rank", piece(2, 1, 2, 0, []uint32{1}, []uint32{4}), "argument"},
		{"a piece too far", piece(2, 0, 3, 0, []uint32{1}, []uint32{4}), "argument"},
		{"second of two", piece(2, 0, 2, 0, []uint32{1}, []uint32{10}), ""},
		{"an index that is not there", piece(2, 1, 0, 0, []uint32{1}, []uint32{testSamples}), "argument"},
	}
	for _, step := range steps {
		f := c.ask(typePush, step.body)
		var said failure
		if f.kind == typeError {
			json.Unmarshal(f.body, &said)
		} else if f.kind != typeOK {
			t.Errorf("%s: type %d", step.name, f.kind)
		}
		if said.Kind != step.kind {
			t.Errorf("%s: got %q (%s), want %q", step.name, said.Kind, said.Message, step.kind)
		}
	}
	for number, want := range [][]uint32{{7, 8}, {9}, {10}} {
		got := c.batch(c.ask(typeChunk, columnOf(2, 0, uint32(number))))
		got.check(t)
		if !slices.Equal(got.indices, want) {
			t.Errorf("batch %d of the pushed order is %v, want %v", number, got.indices, want)
		}
	}
	if f := c.ask(typeChunk, columnOf(2, 0, 3)); f.kind != typeEnd {
		t.Errorf("after the pushed order: type %d, want END", f.kind)
	}
}

func TestArgumentErrorsLeaveTheConnection(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	for name, q := range map[string]frame{
		"index":        {kind: typeGet, body: getBody(testSamples)},
		"epoch":        {kind: typeChunk, body: columnOf(3, 0, 0)},
		"rank":         {kind: typeChunk, body: columnOf(0, 2, 0)},
		"name's index": {kind: typeNames, body: columnOf(1, testSamples)},
		"large GET":    {kind: typeGet, body: append(columnOf(nowhere, nowhere, nowhere, maxBatch+1), make([]byte, 4*(maxBatch+1))...)},
	} {
		c.send(q.kind, q.body)
		if said := c.fails(); said.Kind != "argument" {
			t.Errorf("%s: %+v", name, said)
		}
	}
	c.batch(c.ask(typeGet, getBody(3))).check(t)
}

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
			break // what was sent in full can be read, then comes the end
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

// A client may go away at any byte of what it says.
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
	var status engine.Status = e.Status()
	if status.Jobs[0].ChunksDelivered == 0 {
		t.Error("no request was answered at all")
	}
}
