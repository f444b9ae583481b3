package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lcache/ingest"
	"lcache/lanes"
	"lcache/sample"
	"lcache/schedule"
)

// TestByPlace: of a segment with samples of 16,000 bytes of which a quarter is wanted, a wanted sample is read along with the next one if no more than two lie between them.
func TestByPlace(t *testing.T) {
	s := restSegment{bytes: 400 * 16_000, wanted: 100}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-6*math.Max(1, want) }
	reads, between, used := s.byPlace(16_000, 1000)
	if want := 100 * math.Pow(.75, 3); !near(reads, want) || !near(used, 100-want) {
		t.Errorf("%.2f reads, %.2f samples along; want %.2f and %.2f", reads, used, want, 100-want)
	}
	if want := 100 * (.25*.75 + 2*.25*.75*.75) * 16_000; !near(between, want) {
		t.Errorf("%.0f bytes between, want %.0f", between, want)
	}
	if reads, between, used = s.byPlace(16_000, 0); reads != 100 || between != 0 || used != 0 {
		t.Errorf("without memory %.2f reads, %.0f bytes between, %.2f along; want 100, 0, 0", reads, between, used)
	}
	if _, half, used := s.byPlace(16_000, 20); used != 20 || !near(half, 100*(.25*.75+2*.25*.75*.75)*16_000*20/(100-100*math.Pow(.75, 3))) {
		t.Errorf("with memory for 20: %.2f along, %.0f bytes between", used, half)
	}
	if reads, between, _ := s.byPlace(100_000, 1000); reads >= 100 || between != 0 { // larger than the gap: neighbours alone
		t.Errorf("of large samples %.2f reads, %.0f bytes between; want fewer than 100, and 0", reads, between)
	}
}

// smallAlong is memory for four samples of a dataset of 40, each of one size.
func smallAlong(t *testing.T) (d *dataset, a *alongMemory, each int64) {
	t.Helper()
	givesBack(t)
	d = makeDataset(t, 40, func(*rand.Rand, int) int { return 3000 })
	o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10})
	e := open(t, o)
	t.Cleanup(func() { closeEngine(t, e) })
	each = newCells(e.cache.Manifest).round(3000)
	a, err := e.newAlongMemory(4*each + alongTable*40)
	if err != nil || a == nil {
		t.Fatalf("%v, %v", a, err)
	}
	t.Cleanup(a.close)
	return d, a, each
}

// TestAlongMemory: what is read along has room set apart for it, stays until it was delivered, and is of one epoch.
func TestAlongMemory(t *testing.T) {
	d, a, _ := smallAlong(t)
	if none, err := a.e.newAlongMemory(alongTable * 40); none != nil || err != nil {
		t.Errorf("%v, %v, with room for the tables alone", none, err)
	}
	takes := func(index sample.Index) bool {
		if !a.Take(index) {
			return false
		}
		a.Keep(index, d.bytes[index])
		return true
	}
	if takes(0) || a.of(3) != nil {
		t.Error("a sample was taken before an epoch began")
	}
	a.begin(3, []sample.Index{0, 1, 2, 3, 4, 5}, []sample.Index{6, 7})
	for i := range sample.Index(4) {
		if !takes(i) {
			t.Errorf("there is no room for sample %d", i)
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
	a.delivered(2, []sample.Index{0}) // of another epoch
	if !a.held.Has(0) || a.held.Has(3) || a.of(3) == nil || a.of(2) != nil || a.of(5) != nil {
		t.Error("the epoch before drops a sample, or a dropped one is here")
	}
	a.delivered(3, []sample.Index{0, 1, 2, 3})
	if a.taken != 0 || a.held.bytes() != 0 || a.held.Has(0) || takes(0) {
		t.Errorf("%d bytes are set apart after the delivery, %d held", a.taken, a.held.bytes())
	}
	bad := append([]byte{d.bytes[4][0] ^ 1}, d.bytes[4][1:]...)
	if a.Take(4); !a.held.Has(4) {
		if a.Keep(4, bad); a.held.Has(4) {
			t.Error("bytes with another checksum were kept")
		}
	}
	if takes(5); takes(6) || a.of(4) == nil || !takes(6) || takes(5) || a.held.Has(5) {
		t.Error("the first chunk of the next epoch does not begin it")
	}
	if a.begin(4, []sample.Index{5, 6, 7}, nil); !a.held.Has(6) {
		t.Error("an epoch that a chunk has begun begins once more")
	}
	a.begin(5, nil, nil) // a plain epoch
	if a.taken != 0 || a.held.bytes() != 0 || a.of(5) != nil || takes(5) {
		t.Error("something of the epoch before is left, or taken in one that has nothing to read along")
	}
}

// TestStaysForTheNextEpoch: what was read by place, or along, and is wanted in the next epoch stays for it, in half of the memory at most, and then is as any sample that was read along.
func TestStaysForTheNextEpoch(t *testing.T) {
	d, a, cell := smallAlong(t)
	here := func(when string, want ...sample.Index) {
		t.Helper()
		var got []sample.Index
		for i := range sample.Index(40) {
			if a.held.Has(i) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) || a.taken != int64(len(want))*cell || a.held.bytes() != a.taken {
			t.Errorf("%s: %v are here, %d bytes are set apart, %d held; want %v", when, got, a.taken, a.held.bytes(), want)
		}
	}
	along := func(index sample.Index) {
		t.Helper()
		if !a.Take(index) {
			t.Errorf("there is no room for sample %d", index)
		}
		a.Keep(index, d.bytes[index])
	}
	again := func(index sample.Index) { a.Again(index, d.bytes[index]) }
	again(0)
	here("before any epoch")
	a.begin(1, []sample.Index{0, 1, 2, 3, 4, 5}, []sample.Index{2, 3, 4, 8})
	again(0)
	again(8)
	here("of two that were read by place the next epoch wants one", 8)
	again(8)
	here("once more", 8)
	along(1)
	along(2)
	along(3)
	a.delivered(1, []sample.Index{1, 2, 3})
	here("half of the memory stays, in the order of deliveries", 2, 8)
	again(4)
	here("there is no room for a third one", 2, 8)
	along(5)
	if a.of(2) != a {
		t.Error("a chunk of the next epoch does not begin it")
	}
	here("the next epoch begins, and does not want what was not delivered", 2, 8)
	a.begin(2, []sample.Index{2, 3, 4, 8}, []sample.Index{2, 9})
	a.delivered(2, []sample.Index{2, 8})
	here("one is wanted a third time", 2)
	bad := append([]byte{d.bytes[9][0] ^ 1}, d.bytes[9][1:]...)
	if a.Again(9, bad); a.held.Has(9) {
		t.Error("bytes with another checksum were kept")
	}
	here("bytes with another checksum were not kept", 2)
	a.begin(4, []sample.Index{2, 9}, nil)
	here("an epoch that does not follow")
}

// TestReadsAlong: what is wanted of segments that stay where they are is read along with what lies near it, and copied from memory when it is asked for. All bytes are right, nothing comes from the source,
// and no epoch has more in memory than it was given. How much faster that is depends on the device: scripts/bench-importance.
func TestReadsAlong(t *testing.T) {
	d := photos(t, 6000)
	for _, lag := range lanes.Some([]string{`1`, `"split"`}, 1) {
		t.Run("lag "+lag, func(t *testing.T) {
			givesBack(t)
			o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10, Memory: 48 << 20})
			cache := d.total / 5
			o.Patience, o.Memory = 20*time.Second, 56<<20+cache
			e := open(t, o)
			defer closeEngine(t, e)
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,"method":"impact","lag":%s,"params":{"s_share":0,"warmup":2}}`, cache, lag))
			p := e.owner.importance.Load()
			if got, most := p.room.kept, e.opts.Memory-int64(e.cache.Sizing.Memory); got > most || p.along == nil {
				t.Fatalf("importance takes %d bytes, memory leaves %d; read along: %v", got, most, p.along != nil)
			}
			c := attach(t, e)
			defer c.Disconnected()
			kept, stayed := 0, 0
			for epoch := range 8 {
				here, stay := map[sample.Index]bool{}, map[sample.Index]bool{}
				l.observed(t, c, epoch, func(int) {
					p.along.mu.Lock()
					defer p.along.mu.Unlock()
					for i := range p.along.promised.All {
						if p.along.again.Has(i) {
							stay[i] = true
						} else if p.along.held.Has(i) {
							here[i] = true
						}
					}
					if p.along.taken > p.along.capacity || p.along.held.bytes() > p.along.taken {
						t.Errorf("epoch %d: %d bytes are set apart and %d held, with room for %d", epoch, p.along.taken, p.along.held.bytes(), p.along.capacity)
					}
				})
				if stayed += len(stay); p.along.againBytes > p.along.capacity/againShare {
					t.Errorf("epoch %d: %d bytes stay for the next one, with room for %d", epoch, p.along.againBytes, p.along.capacity)
				}
				if t.Logf("epoch %d: %d samples read along, %d kept for the next epoch", epoch, len(here), len(stay)); epoch >= 3 {
					kept += len(here)
				} else if epoch < 2 && len(here) > 0 {
					t.Errorf("%d samples were read along in epoch %d, which is plain", len(here), epoch)
				}
			}
			if kept < 50 {
				t.Errorf("%d samples were read along in 5 epochs", kept)
			}
			if stayed < 50 {
				t.Errorf("%d samples stayed for the next epoch", stayed)
			}
			noSource(t, e)
		})
	}
}
