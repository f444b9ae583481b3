package staging_test

import (
	"strings"
	"testing"

	"lcache/internal/serve/staging"
	"lcache/sample"
)

// CheckReleased names a Hold, a pin and an extent while each is held, and none once they are released, even after
// Close.
func TestCheckReleased(t *testing.T) {
	s, err := staging.New(staging.Options{Samples: 4, Align: 64, Slots: 1, SlotBytes: 4096, MissBytes: 8192, SideBytes: 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, ok := s.Acquire(staging.Segment{Log: 1}); !ok {
		t.Fatal("no slot")
	}
	s.Publish(0, 0, sample.FromLog)
	s.Ready(0)
	is := func(when, want string) {
		t.Helper()
		switch err := s.CheckReleased(); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", when, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", when, err, want)
		}
	}
	is("a ready slot", "")
	var h staging.Hold
	if s.Take(&h, []sample.Index{0}, make([]bool, 1), make([]bool, 1), make([]staging.Address, 1)) != 0 {
		t.Fatal("the sample is not there")
	}
	is("a Hold", "slot 0 has 1 Holds and 0 pins")
	s.Release(&h)
	s.Pin(0)
	is("a pin", "slot 0 has 0 Holds and 1 pins")
	s.Unpin(0)
	x, ok := s.Alloc(staging.Miss, 1, 100)
	if !ok {
		t.Fatal("no memory")
	}
	is("an extent", "4096 bytes of the pool for misses are in use")
	out := make([]*staging.Extent, 1)
	s.PublishPieces([]staging.Piece{{Of: x, Index: 1, Data: x.Buf[:100], Takes: 1, From: sample.FromSource}}, out)
	s.Drop(x)
	is("a published extent", "sample 1 at 4096 has 1 references, 1 of them kept")
	s.Close()
	is("after Close", "sample 1 at 4096")
	s.Drop(out[0])
	is("at the end", "")
}
