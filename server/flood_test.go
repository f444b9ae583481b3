package server

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"lcache/engine"
	"lcache/internal/disk/offheap"
)

// keptBytes returns the process's memory after garbage collection.
func keptBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) + offheap.Mapped()
}

// Small requests with arbitrary numbers leave nothing behind in the server, and valid requests are answered as before.
func TestSmallRequestsKeepNothing(t *testing.T) {
	const n, limit = 600, 256 << 10
	s := start(t, testEngine(t, nil), nil)
	get := func(epoch, rank, batch uint32) []byte { return columnOf(epoch, rank, batch, 1, 3) }
	push := func(epoch, rank, first, more uint32) []byte { return columnOf(epoch, rank, first, more, 1, 1, 7) }
	report := func(epoch, rank uint32) []byte {
		b, _ := json.Marshal(map[string]any{"epoch": epoch, "rank": rank, "loop_seconds": 0.001})
		return b
	}
	for name, q := range map[string]func(i uint32) frame{
		"GET, batches":           func(i uint32) frame { return frame{kind: typeGet, body: get(1, 0, 0xfffffffe-i)} },
		"GET, epochs":            func(i uint32) frame { return frame{kind: typeGet, body: get(i, 0, 0xfffffffe)} },
		"GET, epochs at the end": func(i uint32) frame { return frame{kind: typeGet, body: get(0xffffffff-i, i%2, 0)} },
		"GET, ranks":             func(i uint32) frame { return frame{kind: typeGet, body: get(0, i<<20, 1)} },
		"CHUNK, batches":         func(i uint32) frame { return frame{kind: typeChunk, body: columnOf(1, 0, 0xfffffffe-i)} },
		"CHUNK, epochs":          func(i uint32) frame { return frame{kind: typeChunk, body: columnOf(3+i<<20, 0, 0)} },
		"CHUNK, ranks":           func(i uint32) frame { return frame{kind: typeChunk, body: columnOf(0, 2+i<<20, 0)} },
		"PUSH, epochs":           func(i uint32) frame { return frame{kind: typePush, body: push(3+i<<20, 0, 0, 0)} },
		"PUSH, ranks":            func(i uint32) frame { return frame{kind: typePush, body: push(0, 2+i<<20, 0, 0)} },
		"PUSH, first pieces":     func(i uint32) frame { return frame{kind: typePush, body: push(i, i, 0, 1)} },
		"PUSH, pieces too far":   func(i uint32) frame { return frame{kind: typePush, body: push(2, 0, 0xffffffff-i, 1)} },
		"REPORT, epochs":         func(i uint32) frame { return frame{kind: typeReport, body: report(0xffffffff-i, 0)} },
		"REPORT, ranks":          func(i uint32) frame { return frame{kind: typeReport, body: report(0, i)} },
		"RELEASE":                func(i uint32) frame { return frame{kind: typeRelease, body: releaseBody(1<<40 + uint64(i))} },
		"CANCEL":                 func(i uint32) frame { return frame{kind: typeCancel, body: columnOf(1, 1<<30+i)} },
		"NAMES":                  func(i uint32) frame { return frame{kind: typeNames, body: columnOf(1, testSamples+i)} },
		"LABELS":                 func(i uint32) frame { return frame{kind: typeLabels, body: columnOf(testSamples+i, 1)} },
		"PARTS":                  func(i uint32) frame { return frame{kind: typeParts, body: columnOf(1, testSamples+i)} },
	} {
		t.Run(name, func(t *testing.T) {
			c := attach(t, s, "")
			send := func(i uint32) {
				f := q(i)
				if f.kind == typeReport || f.kind == typeRelease || f.kind == typeCancel {
					c.send(f.kind, f.body)
					return
				}
				if f = c.ask(f.kind, f.body); f.kind == typeBatch {
					b := c.batch(f)
					b.check(t)
					c.send(typeRelease, releaseBody(b.lease))
				}
			}
			held := func(i uint32) int64 {
				c.ask(typeStatus, nil) // earlier frames without an answer were carried out by then
				return keptBytes()
			}
			send(0)
			before := held(0)
			for i := range uint32(n) {
				send(i)
				if i&(i-1) == 0 || i == n-1 {
					if kept := held(i) - before; kept > limit {
						t.Fatalf("%d requests left %d bytes behind, want at most %d", i+1, kept, limit)
					}
				}
			}
			c.send(typeBye, nil)
			c.end()
		})
	}
	works(t, s)
}

// Partly received orders count together, over all connections, and only until their connection ends.
func TestHalfPushedOrdersHaveALimit(t *testing.T) {
	s := start(t, testEngine(t, func(o *engine.Options) { o.PushBytes = 1 << 20 }), nil)
	indices := make([]uint32, 100_000)
	half := append(columnOf(0, 0, 0, 1, 1, uint32(len(indices))), columnOf(indices...)...)
	var open []*client
	refused := 0
	before := keptBytes()
	for range 40 {
		c := attach(t, s, "")
		open = append(open, c)
		if f := c.ask(typePush, half); f.kind == typeError {
			refused++
			if !strings.Contains(string(f.body), `"argument"`) || !strings.Contains(string(f.body), "push it again, from batch 0 on") {
				t.Errorf("got %s, want what to do", f.body)
			}
		}
	}
	if kept := keptBytes() - before; refused != 38 || kept > 16<<20 { // each connection and its test's end take some of it
		t.Errorf("%d of 40 orders were refused, %d bytes are kept; want two orders", refused, kept)
	}
	if f := open[0].ask(typePush, columnOf(0, 0, 1, 0, 1, 1, 4)); f.kind != typeOK {
		t.Errorf("the rest of an order that was kept: type %d, %s", f.kind, f.body)
	}
	for _, c := range open[:39] {
		c.send(typeBye, nil)
		c.end()
	}
	for range 2 {
		if f := open[39].ask(typePush, half); f.kind != typeOK {
			t.Errorf("when the others are gone: %s", f.body)
		}
	}
}

// If another connection of the session releases the batches of one connection, that connection forgets them.
func TestReleasedByAnotherConnection(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	a := attach(t, s, "")
	b := attach(t, s, a.info.Token)
	if b.info.Token != a.info.Token {
		t.Fatal("the second connection has a session of its own")
	}
	rounds := func(n int) {
		for range n {
			f := a.ask(typeGet, getBody()) // no samples: nothing but the lease
			b.send(typeRelease, releaseBody(a.batch(f).lease))
		}
		b.ask(typeStatus, nil)
	}
	rounds(2000) // until the maps have their size
	before := keptBytes()
	const n = 30_000
	rounds(n)
	if kept := keptBytes() - before; kept > n*10 { // a lease and its answer take 40 bytes or more
		t.Errorf("%d bytes are kept for %d leases that were released", kept, n)
	}
}

// A process may leave only a limited number of sessions behind that hold batches, because each takes a descriptor until the process ends.
func TestSessionsLeftBehind(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(fds)
	}
	before, refused := count(), 0
	for i := range 1100 {
		c := dial(t, s.Path())
		said, _ := json.Marshal(hello{Protocol: protocolVersion, Client: "test"})
		b := finish(append(begin(nil, typeHello, 1), said...), 0)
		at := len(b)
		c.write(finish(append(begin(b, typeGet, 2), getBody()...), at))
		f := c.receive()
		if f.kind == typeJSON {
			c.receive()
		} else {
			refused++
			if want := fmt.Sprintf("has closed %d connections", 1024); !strings.Contains(string(f.body), want) {
				t.Fatalf("session %d: type %d, %s", i, f.kind, f.body)
			}
		}
		c.c.CloseWrite()
		c.end()
		c.c.Close()
	}
	if more := count() - before; refused != 1100-1024 || more > 1050 {
		t.Errorf("%d of 1100 sessions were refused, %d more descriptors are open", refused, more)
	}
}
