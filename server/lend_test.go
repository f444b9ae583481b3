package server

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/engine"
)

func lendBody(from uint32, get []byte) []byte { return append(columnOf(typeGet, from), get...) }

func copiedBody(loan uint64) []byte { return binary.LittleEndian.AppendUint64(nil, loan) }

func kindOf(f frame) string {
	var said failure
	if f.kind == typeError {
		json.Unmarshal(f.body, &said)
	}
	return said.Kind
}

// loan decodes a LOAN; next is the start of the following part.
func (c *client) loan(f frame) (b batch, next, total uint32) {
	c.t.Helper()
	if f.kind != typeLoan {
		c.t.Fatalf("got type %d: %s", f.kind, f.body)
	}
	head := body{b: f.body[8:loanHead]}
	n, next, total := head.u32(), head.u32(), head.u32()
	return c.columns(binary.LittleEndian.Uint64(f.body), f.body[loanHead:], n), next, total
}

// copied requests the parts of a GET with temporary leases, and returns the indices of all samples.
func (c *client) copied(get []byte) (indices []uint32) {
	c.t.Helper()
	for next, total := uint32(0), uint32(1); next < total; {
		part, after, all := c.loan(c.ask(typeLend, lendBody(next, get)))
		switch f := c.ask(typeCopied, copiedBody(part.lease)); {
		case f.kind == typeOK:
			part.check(c.t)
			indices = append(indices, part.indices...)
			next, total = after, all
		case kindOf(f) != "late":
			c.t.Fatalf("COPIED was answered with type %d: %s", f.kind, f.body)
		}
	}
	return indices
}

// Sixteen clients take batches up to their credit while memory lasts, keep them, and request one batch more. Each gets an answer in time.
func TestEveryClientIsAnswered(t *testing.T) {
	s := start(t, testEngine(t, func(o *engine.Options) { o.Patience = time.Millisecond }), nil)
	wanted := make([]uint32, 600) // 8 KB each
	for i := range wanted {
		wanted[i] = uint32(i)%testSamples/7*7 + 3
	}
	wanted = slices.DeleteFunc(wanted, func(i uint32) bool { return i >= testSamples })
	get := getBody(wanted...)
	var all []*client
	refused := 0
	for range 16 {
		c := attach(t, s, "", "lend")
		all = append(all, c)
		if !slices.Contains(c.info.Features, "lend") {
			t.Fatalf("the server says %v", c.info.Features)
		}
		for held := int64(0); held < c.info.CreditBytes; {
			f := c.ask(typeGet, get)
			if kindOf(f) == "room" {
				refused++
				break
			}
			c.batch(f)
			held += int64(binary.LittleEndian.Uint32(f.body[12:])) << 10
		}
	}
	if refused == 0 {
		t.Fatal("all clients together have not filled side memory")
	}
	var group sync.WaitGroup
	for _, c := range all {
		group.Go(func() {
			f := c.ask(typeGet, get)
			if said := string(f.body); kindOf(f) != "room" || !strings.Contains(said, fmt.Sprintf("process %d holds", os.Getpid())) {
				t.Errorf("got type %d: %.200s", f.kind, said)
				return
			}
			if got := c.copied(get); !slices.Equal(got, wanted) {
				t.Errorf("got %d samples, want %d", len(got), len(wanted))
			}
		})
	}
	group.Wait()
}

// COPIED takes effect when it is read, because an earlier request of the connection may wait for that lease.
func TestCopiedDoesNotWaitItsTurn(t *testing.T) {
	s := start(t, testEngine(t, func(o *engine.Options) { o.LeaseTime = time.Hour }), nil)
	c := attach(t, s, "", "lend")
	first, _, _ := c.loan(c.ask(typeLend, lendBody(0, getBody(3))))
	lend := c.send(typeLend, lendBody(0, getBody(4)))
	copied := c.send(typeCopied, copiedBody(first.lease))
	f := c.receive()
	if f.request != lend {
		t.Fatalf("request %d was answered, want %d", f.request, lend)
	}
	second, next, total := c.loan(f)
	if second.check(t); next != 1 || total != 1 {
		t.Errorf("next %d of %d", next, total)
	}
	if f = c.receive(); f.request != copied || f.kind != typeOK {
		t.Errorf("COPIED: request %d type %d: %s", f.request, f.kind, f.body)
	}
	for range 2 { // a second time it is too late
		f = c.ask(typeCopied, copiedBody(second.lease))
	}
	if kindOf(f) != "late" {
		t.Errorf("COPIED once more: type %d: %s", f.kind, f.body)
	}
	end := c.ask(typeLend, columnOf(typeChunk, 0, 0, 0, 1000))
	if end.kind != typeEnd {
		t.Errorf("LEND past the end: type %d: %s", end.kind, end.body)
	}
	if f := c.ask(typeLend, lendBody(2, getBody(3))); kindOf(f) != "argument" {
		t.Errorf("LEND from after the end: type %d: %s", f.kind, f.body)
	}
}
