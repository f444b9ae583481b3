package memory

import (
	"testing"

	"lcache/sample"
)

// TestForgottenNodes: a node that was found before all nodes were forgotten is not added; a later one is.
func TestForgottenNodes(t *testing.T) {
	d := newSamples(t)
	h, _ := d.high(t, "lru", `,"substitute":"class","params":{"ratio":[0.5,0.5]}`)
	count := func() int { here, _ := h.Nodes(); return here }
	old := foundNode{3, []sample.Index{4, 5}, h.nodes.turn}
	h.ForgetNodes()
	if h.put(old, d.bytes[3]); count() != 0 || h.Held().Has(3) {
		t.Error("a node of the embeddings before has entered")
	}
	old.turn++
	if h.put(old, d.bytes[4]); count() != 0 {
		t.Error("a node has entered with other bytes")
	}
	if h.put(old, d.bytes[3]); count() != 1 || !h.Held().Has(3) {
		t.Error("a node of the new embeddings has not entered")
	}
	if h.ForgetNodes(); count() != 0 || h.Held().Taken() != 0 {
		t.Errorf("%d nodes with %d bytes after all were forgotten", count(), h.Held().Taken())
	}
}
