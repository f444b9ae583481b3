package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
