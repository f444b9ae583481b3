package logfile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/internal/testenv"
	"lcache/sample"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// small is a journal with a few full blocks and a tail, closed cleanly.
func small(t *testing.T) (b *bed, journal []byte) {
	t.Helper()
	b = newBed(t, 1, 4096, 16, []uint32{1000, 2000, 3000, 9000, 500, 100})
	b.opts.IO = openIODepth(t, 1) // one order of records
	b.open()
	l := b.begin(0, 2, 2, 8, 8)
	for i := range uint32(6) {
		b.append(l, int(i/5), i)
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	path := b.s.journalPath(0)
	b.close()
	journal, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, journal
}

// withJournal opens the cache with other bytes in journal-0, and returns the samples found, all of them right, and the counters.
func (b *bed) withJournal(journal []byte) (found map[int][]sample.Index, st Stats) {
	b.t.Helper()
	return b.openWith(journal, b.check)
}

// listed returns the arrival lists, without reading the bytes.
func listed(l *Logfile) map[int][]sample.Index {
	found := map[int][]sample.Index{}
	for seg := range l.segs {
		l.Arrivals(seg, func(_ int, i sample.Index, _ uint64) bool { found[seg] = append(found[seg], i); return true })
	}
	return found
}

func (b *bed) openWith(journal []byte, look func(*Logfile) map[int][]sample.Index) (found map[int][]sample.Index, st Stats) {
	b.t.Helper()
	path := filepath.Join(b.dirs[0], "journal-0")
	if err := os.WriteFile(path, journal, 0o600); err != nil {
		b.t.Fatal(err)
	}
	s := b.open()
	if l := s.Logfiles()[0]; l != nil {
		found = look(l)
	}
	b.books()
	st = s.Stats()
	b.close()
	return found, st
}

// recordEnds is where each record of a journal ends. The first begins at head.
func (b *bed) recordEnds(journal []byte, head int) (ends []int) {
	b.t.Helper()
	for off := head; off < len(journal); {
		n, err := recordLength(journal[off:], b.format.recordLimit())
		if err != nil {
			b.t.Fatal(err)
		}
		off += n
		ends = append(ends, off)
	}
	return ends
}

// A journal that is cut anywhere has the complete records, and later ones are appended behind them.
func TestJournalCutAtEveryByte(t *testing.T) {
	testenv.Long(t)
	b, whole := small(t)
	head := headerSize(2)
	ends := b.recordEnds(whole, head)
	if len(ends) != 5 { // three full blocks and two tails
		t.Fatalf("%d records", len(ends))
	}
	for cut := range len(whole) + 1 {
		found, st := b.withJournal(whole[:cut])
		complete := 0
		for _, end := range ends {
			if end <= cut {
				complete++
			}
		}
		if cut < head {
			if found != nil {
				t.Errorf("cut at %d of the header: %v", cut, found)
			}
			continue
		}
		if int(st.RecoveredRecords) != complete || found == nil {
			t.Errorf("cut at %d: %d records, want %d; %v", cut, st.RecoveredRecords, complete, found)
		}
		now, err := os.ReadFile(filepath.Join(b.dirs[0], "journal-0"))
		if err != nil {
			t.Fatal(err)
		}
		if len(now) >= cut && cut > head && !slices.Contains(ends, cut) || !bytes.HasPrefix(whole, now) {
			t.Errorf("cut at %d: the torn end was not cut off: %d bytes left", cut, len(now))
		}
	}
}

// A flipped byte costs the header's Logfile, or one record, and never gives a wrong byte.
func TestJournalFlippedAtEveryByte(t *testing.T) {
	testenv.Long(t)
	b, whole := small(t)
	all, _ := b.withJournal(whole)
	head := headerSize(2)
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		found, st := b.withJournal(bad)
		if i < head {
			if found != nil {
				t.Errorf("byte %d of the header flipped: %v", i, found)
			}
			continue
		}
		if st.RecoveredRecords != 4 || found == nil || len(found[0])+len(found[1]) >= len(all[0])+len(all[1]) {
			t.Errorf("byte %d flipped: %d records, %v of %v", i, st.RecoveredRecords, found, all)
		}
	}
}

func TestZeroedJournal(t *testing.T) {
	b, whole := small(t)
	for head := range 2 {
		bad := slices.Clone(whole)
		clear(bad[head*headerSize(2):])
		found, st := b.withJournal(bad)
		if st.RecoveredRecords != 0 || (found == nil) != (head == 0) || len(found) != 0 {
			t.Errorf("zeroed: %v, %+v", found, st)
		}
	}
	var r record
	if err := decodeRecord(make([]byte, recordSize(0)), &r, 0); err == nil {
		t.Error("zeros are a record")
	}
}

func TestRecordsThatDoNotFit(t *testing.T) {
	b, whole := small(t)
	_, want := b.withJournal(whole)
	good := record{generation: 1000, epoch: 2, segment: 1, sequence: 5, place: 9, used: 1024, first: 0}
	indices := []sample.Index{0}
	bend := map[string]func(r *record, indices *[]sample.Index){
		"epoch":          func(r *record, _ *[]sample.Index) { r.epoch = 3 },
		"generation":     func(r *record, _ *[]sample.Index) { r.generation = 1 },
		"segment":        func(r *record, _ *[]sample.Index) { r.segment = 2 },
		"sequence":       func(r *record, _ *[]sample.Index) { r.sequence = 8 },
		"place":          func(r *record, _ *[]sample.Index) { r.place = 16 },
		"at":             func(r *record, _ *[]sample.Index) { r.at = 4096 },
		"at unaligned":   func(r *record, _ *[]sample.Index) { r.at = 64 },
		"used":           func(r *record, _ *[]sample.Index) { r.used = 8192 },
		"used unaligned": func(r *record, _ *[]sample.Index) { r.used = 1023 },
		"used nothing":   func(r *record, _ *[]sample.Index) { r.used = 0 },
		"used too much":  func(r *record, _ *[]sample.Index) { r.used = 1088 },
		"used too small": func(r *record, _ *[]sample.Index) { r.used = 960 },
		"first":          func(r *record, _ *[]sample.Index) { r.first = 4096 },
		"index":          func(r *record, i *[]sample.Index) { *i = []sample.Index{6} },
		"no index":       func(r *record, i *[]sample.Index) { *i = nil },
		"more indices":   func(r *record, i *[]sample.Index) { *i = []sample.Index{0, 5} },
		"freed too many": func(r *record, i *[]sample.Index) {
			r.place, r.used, r.sequence, *i = noPlace, 0, 9, nil
		},
	}
	add := func(r record, indices []sample.Index) []byte {
		return appendRecord(slices.Clone(whole), &r, indices, b.format.seed())
	}
	if _, st := b.openWith(add(good, indices), listed); st.IgnoredRecords != 0 || st.RecoveredRecords != want.RecoveredRecords+1 {
		t.Fatalf("the good record: %+v", st)
	}
	for name, f := range bend {
		r, list := good, slices.Clone(indices)
		f(&r, &list)
		if _, st := b.openWith(add(r, list), listed); st.IgnoredRecords != 1 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	// Of two claims on one place, and of two on one block, the newest generation wins.
	first := record{generation: 2000, epoch: 2, segment: 1, sequence: 6, place: 0, used: 1024}
	found, _ := b.openWith(add(first, indices), listed)
	if len(found[0]) == 5 {
		t.Error("an older claim on a place was kept")
	}
}

func TestJournalOfAnotherManifest(t *testing.T) {
	b, whole := small(t)
	b.opts.Fingerprint[0]++
	if found, _ := b.withJournal(whole); found != nil {
		t.Errorf("found %v", found)
	}
	b.opts.Fingerprint[0]--
	if found, _ := b.withJournal(whole); found == nil {
		t.Error("the right manifest finds nothing")
	}
}

// TestJournalGolden holds the format, the annotated bytes in testdata, and the diagram in journalformat.go together.
func TestJournalGolden(t *testing.T) {
	_, whole := small(t)
	golden(t, "journal.hex", annotated(whole, "0"))
}

// annotated prints a journal of two segments. open is what its header has at byte 76.
func annotated(whole []byte, open string) string {
	head := headerSize(2)
	var out strings.Builder
	line := func(b []byte, what string) { fmt.Fprintf(&out, "%-50s # %s\n", hex.EncodeToString(b), what) }
	field := func(b *[]byte, n int, what string) { line((*b)[:n], what); *b = (*b)[n:] }
	p := whole[:head]
	for _, f := range []struct {
		n    int
		what string
	}{{8, "magic"}, {4, "version"}, {4, "length"}, {8, "generation"}, {16, "fingerprint"}, {16, "key"}, {4, "epoch"}, {4, "segments"},
		{4, "segmentBlocks"}, {4, "align"}, {4, "block"}, {4, open}, {8, "start"}, {4, "room of segment 0"}, {4, "room of segment 1"}, {8, "checksum"}} {
		field(&p, f.n, f.what)
	}
	for off := head; off < len(whole); {
		n := int(binary.LittleEndian.Uint32(whole[off+4:]))
		p := whole[off : off+n]
		fmt.Fprintln(&out)
		for _, what := range []string{"record", "length", "generation", "epoch", "segment", "sequence", "place", "at", "used", "first", "count"} {
			size := 4
			if what == "generation" {
				size = 8
			}
			field(&p, size, what)
		}
		for count := binary.LittleEndian.Uint32(whole[off+44:]); count > 0; count-- {
			field(&p, 4, "index")
		}
		if len(p) > 8 {
			field(&p, 4, "pad")
		}
		field(&p, 8, "checksum")
		off += n
	}
	return out.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if the format was changed on purpose, raise its version and run with -update\n%s", path, got)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	format := Format{Block: 4096, Align: 64, UUID: [16]byte{1}, Places: 8}
	r := record{generation: 7, epoch: 1, segment: 2, sequence: 3, place: 4, used: 4096, first: 64}
	f.Add(appendRecord(nil, &r, []sample.Index{1, 2, 3}, format.seed()))
	f.Add(appendRecord(nil, &r, nil, format.seed()))
	f.Add(make([]byte, 64))
	f.Add([]byte{0x7f, 'L', 'J', '1', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 8 {
			return
		}
		n, err := recordLength(b, format.recordLimit())
		if err != nil || n > len(b) {
			return
		}
		// The checksum is made right, so that the fields behind it are looked at.
		le := binary.LittleEndian
		var got record
		if decodeRecord(b[:n], &got, format.seed()) != nil {
			b = slices.Clone(b[:n])
			copy(b[n-8:], appendSum(b[:n-8], format.seed()))
			if decodeRecord(b, &got, format.seed()) != nil {
				return
			}
		}
		if 4*int(got.count) != len(got.indices) || int(got.count) > n/4 {
			t.Fatalf("%d indices in %d bytes of %d", got.count, len(got.indices), n)
		}
		list := make([]sample.Index, got.count)
		for i := range list {
			list[i] = got.index(i)
		}
		if again := appendRecord(nil, &got, list, format.seed()); !bytes.Equal(again[:recordFixed+4*len(list)], b[:recordFixed+4*len(list)]) {
			t.Fatalf("decoded %x, encoded again %x", b[:n], again)
		}
		s := &Store{format: format, sizes: []uint32{100, 64, 5000, 4096, 0}}
		for open := range uint32(2) { // a Logfile, and packages
			rec := &recovery{head: &Header{Epoch: le.Uint32(b[16:]) * (1 - open), Segments: 4, SegmentBlocks: 8, Open: open},
				claims: make([][]claim, 4), freed: make([]uint32, 4), rounds: make([]uint32, 4)}
			rec.rounds[1], rec.claims[1] = 5, make([]claim, 3)
			_ = s.note(rec, &got, make([]uint64, 8)) // must not panic
			if open == 1 && (rec.rounds[1] < 5 || rec.rounds[1] > 5 && got.epoch != rec.rounds[1]) {
				t.Fatalf("round 5 became %d by a record of round %d", rec.rounds[1], got.epoch)
			}
		}
	})
}

func appendSum(b []byte, seed uint64) []byte {
	// What appendRecord would put behind b, taken from the one function that knows how.
	return binary.LittleEndian.AppendUint64(nil, checksum(b, seed))
}
