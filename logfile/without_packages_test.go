package logfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/sample"

	"github.com/zeebo/xxh3"
)

// TestFilesWithoutPackages: a cache that never has packages has the same files and bytes as before packages existed. A version of that time wrote
// testdata/files-without-packages.txt. Only the order of a journal's records differs between runs, because two devices finish their writes in any order.
func TestFilesWithoutPackages(t *testing.T) {
	const n = 60
	b := newBed(t, 2, 4096, 60, randomSizes(n, 4096, 9000, 1))
	b.opts.IO = openIODepth(t, 1)
	var said strings.Builder
	tell := func(when string) {
		t.Helper()
		b.s.flushJournals()
		fmt.Fprintf(&said, "# %s\n", when)
		for _, dir := range b.dirs {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				if entry.Name() == placesName { // how far ahead places are noted follows the time that it takes
					continue
				}
				data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(entry.Name(), "journal") {
					data = b.inOneOrder(data)
				}
				fmt.Fprintf(&said, "%s/%s %d %016x\n", filepath.Base(dir), entry.Name(), len(data), xxh3.Hash(data))
			}
		}
	}
	fill := func(l *Logfile, from, to sample.Index) {
		for i := from; i < to; i++ { // one write at a time
			b.append(l, int(i)%3, i)
			b.flush(l)
		}
	}
	b.open()
	tell("empty")
	l := b.begin(0, 1, 3, 12, n)
	fill(l, 0, 30)
	tell("filled")
	if err := l.WriteTails(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	tell("sealed")
	next := b.begin(1, 2, 3, 12, n)
	fill(next, 30, 45)
	if err := l.FreeBlocks(0, 3); err != nil {
		t.Fatal(err)
	}
	l.FreeSegment(1)
	fill(next, 45, n)
	b.close()
	b.open()
	tell("stopped and started")
	if err := b.s.Drop(0); err != nil {
		t.Fatal(err)
	}
	fill(b.begin(0, 3, 3, 12, n), 0, 20)
	tell("begun once more")
	b.close()
	golden(t, "files-without-packages.txt", said.String())
}

// inOneOrder sorts the records of a journal.
func (b *bed) inOneOrder(journal []byte) []byte {
	head := headerSize(3) // of three segments
	sorted := slices.Clone(journal[:head])
	var records [][]byte
	from := head
	for _, end := range b.recordEnds(journal, head) {
		records = append(records, journal[from:end])
		from = end
	}
	slices.SortFunc(records, bytes.Compare)
	return append(sorted, bytes.Join(records, nil)...)
}
