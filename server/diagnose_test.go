package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"lcache/internal/serve/status"
)

// TestDiagnose: the server's own user gets the diagnosis of its process; the members of a group that may connect are neither offered it nor answered.
func TestDiagnose(t *testing.T) {
	s := start(t, testEngine(t, nil), func(s *Server) {
		s.opts.Diagnose = func() status.Diagnosis { return status.Diagnosis{Goroutines: "stacks", Heap: []byte{1, 2}} }
	})
	c := attach(t, s, "")
	if !slices.Contains(c.info.Features, "diagnose") {
		t.Errorf("features %v", c.info.Features)
	}
	f := c.ask(typeDiagnose, nil)
	var d status.Diagnosis
	if err := json.Unmarshal(f.body, &d); f.kind != typeJSON || err != nil || d.Goroutines != "stacks" || len(d.Heap) != 2 {
		t.Errorf("the answer has type %d: %v, %+v", f.kind, err, d)
	}
	group := newConn(s, nil)
	if err := group.diagnose(t.Context(), &request{}); err == nil || !strings.Contains(err.Error(), "only the user") {
		t.Errorf("another user's DIAGNOSE: got %v, want a refusal", err)
	}
	c.batch(c.ask(typeGet, getBody(1)))
	if f := c.ask(typeDiagnose, []byte{0}); f.kind != typeError || !strings.Contains(string(f.body), "DIAGNOSE has a body") {
		t.Errorf("a body: the answer has type %d: %s", f.kind, f.body)
	}
}

// TestNoDiagnose: a server without a diagnosis does not offer it, and refuses it. The connection continues.
func TestNoDiagnose(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	if slices.Contains(c.info.Features, "diagnose") {
		t.Errorf("features %v", c.info.Features)
	}
	if f := c.ask(typeDiagnose, nil); f.kind != typeError || !strings.Contains(string(f.body), "offers no diagnosis") {
		t.Errorf("the answer has type %d: %s", f.kind, f.body)
	}
	c.batch(c.ask(typeGet, getBody(1)))
}
