package ingest

import (
	"testing"

	"lcache/chunker"
)

// TestIsBetter: a manifest is packed if the log then has more room, and if both forms fit at the same time.
func TestIsBetter(t *testing.T) {
	const budget, metadata = 1000, 300
	for _, tt := range []struct {
		name   string
		packed int // bytes; 0: no packed form
		room   uint64
		want   bool
	}{
		{"more room", 100, 601, true},
		{"as much room", 100, 600, false},
		{"less room", 100, 599, false},
		{"no packed form", 0, 601, false},
		{"the last byte of the budget", 700, 601, true},
		{"one byte too many while it is written", 701, 601, false},
	} {
		plain := form{facts: chunker.Facts{Budget: budget, Metadata: metadata}, sizing: chunker.Sizing{Room: 600}}
		packed := form{sizing: chunker.Sizing{Room: tt.room}}
		if tt.packed > 0 {
			packed.packed = make([]byte, tt.packed)
		}
		if got := isBetter(plain, packed); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
