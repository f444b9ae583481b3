package memory

import (
	"slices"
	"testing"

	"lcache/sample"
)

// TestOpportunisticMemory: samples of opportunistic reads have reserved memory, stay until they are delivered, and belong to one epoch.
func TestOpportunisticMemory(t *testing.T) {
	d := newSamples(t)
	a, _ := d.opportunistic(t)
	if none, err := NewOpportunistic(tableBytes*40, d.Dataset, nil); none != nil || err != nil {
		t.Errorf("%v, %v, with room for the tables alone", none, err)
	}
	takes := func(index sample.Index) bool {
		if !a.Take(index) {
			return false
		}
		a.Keep(index, d.bytes[index])
		return true
	}
	if takes(0) || a.Of(3) != nil {
		t.Error("a sample was taken before an epoch began")
	}
	a.Begin(3, []sample.Index{0, 1, 2, 3, 4, 5}, []sample.Index{6, 7})
	for i := range sample.Index(4) {
		if !takes(i) {
			t.Errorf("no room for sample %d", i)
		}
	}
	data := make([]byte, len(d.bytes[1]))
	if !a.held.Copy(1, data) || string(data) != string(d.bytes[1]) {
		t.Error("a sample that was kept has other bytes")
	}
	if takes(4) || takes(1) || takes(9) || takes(1<<30) {
		t.Error("a sample was taken without room, twice, or of another epoch or dataset")
	}
	a.Drop(3)
	a.Delivered(2, []sample.Index{0}) // of another epoch
	if !a.held.Has(0) || a.held.Has(3) || a.Of(3) == nil || a.Of(2) != nil || a.Of(5) != nil {
		t.Error("the epoch before drops a sample, or a dropped one is here")
	}
	a.Delivered(3, []sample.Index{0, 1, 2, 3})
	if a.taken != 0 || a.held.Taken() != 0 || a.held.Has(0) || takes(0) {
		t.Errorf("%d bytes are set apart after the delivery, %d held", a.taken, a.held.Taken())
	}
	bad := append([]byte{d.bytes[4][0] ^ 1}, d.bytes[4][1:]...)
	if a.Take(4); !a.held.Has(4) {
		if a.Keep(4, bad); a.held.Has(4) {
			t.Error("bytes with another checksum were kept")
		}
	}
	if takes(5); takes(6) || a.Of(4) == nil || !takes(6) || takes(5) || a.held.Has(5) {
		t.Error("the first chunk of the next epoch does not begin it")
	}
	if a.Begin(4, []sample.Index{5, 6, 7}, nil); !a.held.Has(6) {
		t.Error("an epoch that a chunk has begun begins once more")
	}
	a.Begin(5, nil, nil) // a plain epoch
	if a.taken != 0 || a.held.Taken() != 0 || a.Of(5) != nil || takes(5) {
		t.Error("something of the epoch before is left, or taken in one that has no opportunistic reads")
	}
}

// TestStaysForTheNextEpoch: a sample from a random or an opportunistic read stays for the next epoch if that epoch
// wants it, in at most half of the memory. Then it is like any other opportunistic sample.
func TestStaysForTheNextEpoch(t *testing.T) {
	d := newSamples(t)
	a, cell := d.opportunistic(t)
	here := func(when string, want ...sample.Index) {
		t.Helper()
		var got []sample.Index
		for i := range sample.Index(40) {
			if a.held.Has(i) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) || a.taken != int64(len(want))*cell || a.held.Taken() != a.taken {
			t.Errorf("%s: %v are here, %d bytes are set apart, %d held; want %v", when, got, a.taken, a.held.Taken(), want)
		}
	}
	read := func(index sample.Index) {
		t.Helper()
		if !a.Take(index) {
			t.Errorf("no room for sample %d", index)
		}
		a.Keep(index, d.bytes[index])
	}
	again := func(index sample.Index) { a.Again(index, d.bytes[index]) }
	again(0)
	here("before any epoch")
	a.Begin(1, []sample.Index{0, 1, 2, 3, 4, 5}, []sample.Index{2, 3, 4, 8})
	again(0)
	again(8)
	here("the next epoch wants one of the two samples of random reads", 8)
	again(8)
	here("once more", 8)
	read(1)
	read(2)
	read(3)
	a.Delivered(1, []sample.Index{1, 2, 3})
	here("half of the memory stays, in the order of deliveries", 2, 8)
	again(4)
	here("no room for a third sample", 2, 8)
	read(5)
	if a.Of(2) != a {
		t.Error("a chunk of the next epoch does not begin it")
	}
	here("the next epoch begins, and does not want the undelivered samples", 2, 8)
	a.Begin(2, []sample.Index{2, 3, 4, 8}, []sample.Index{2, 9})
	a.Delivered(2, []sample.Index{2, 8})
	here("one is wanted a third time", 2)
	bad := append([]byte{d.bytes[9][0] ^ 1}, d.bytes[9][1:]...)
	if a.Again(9, bad); a.held.Has(9) {
		t.Error("bytes with another checksum were kept")
	}
	here("bytes with another checksum were not kept", 2)
	a.Begin(4, []sample.Index{2, 9}, nil)
	here("an epoch that does not follow")
}
