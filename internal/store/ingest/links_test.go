package ingest

import (
	"testing"

	"lcache/sample"
)

// TestLinksRule: a record of a listing under another rule about links is not trusted.
func TestLinksRule(t *testing.T) {
	no := new(bool)
	in, other := &run{}, &run{o: Options{FollowLinks: no}}
	if in.listed(sample.Fingerprint{}, "/s") == other.listed(sample.Fingerprint{}, "/s") {
		t.Error("two rules, one name")
	}
}
