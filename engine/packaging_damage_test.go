package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

const packagesName = "journal-packages"

// packedBed is a cache whose packages a job has filled, as a clean stop has left it, and the epoch that a server over it gives again.
type packedBed struct {
	*damageBed
	text  string
	epoch int
	order []sample.Index
	early map[string][]byte // the files as they were an epoch before, in the middle of writing
}

func newPackedBed(t *testing.T) *packedBed {
	t.Helper()
	d, o, text := lowBed(t, 500, ingest.Options{})
	o.Logger = nil
	b := &packedBed{damageBed: &damageBed{dataset: d, opts: o}, text: text, epoch: 4}
	e := open(t, o)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, text)
	c := attach(t, e)
	for epoch := range b.epoch + 1 {
		b.order = l.observed(t, c, epoch, func(batch int) {
			if epoch == 3 && batch == 3 {
				b.take(t)
				b.early = b.files
			}
		})
	}
	if _, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false }); packed < 200 || absent > 0 {
		t.Fatalf("%d samples are in packages, %d nowhere", packed, absent)
	}
	c.Disconnected()
	closeEngine(t, e)
	b.take(t)
	return b
}

// packsOn reads an epoch in a known order, and trains the next one, within the budget. It returns how many samples the server has read from the source.
func (l losing) packsOn(t *testing.T, dir string, c *deliver.Client, epoch int, order []sample.Index) (source int64) {
	t.Helper()
	l.goesOn(t, c, epoch, order)
	l.observed(t, c, epoch+1, func(int) {})
	if n := onDisk(t, dir); uint64(n) > l.e.cache.Sizing.Budget {
		t.Errorf("%d bytes on disk, the budget is %d", n, l.e.cache.Sizing.Budget)
	}
	return l.e.Status().Jobs[0].SourceReads
}

// serves starts a server over a copy of the cache, and returns how many samples it read from the source. The server must deliver the right bytes in the same order, continue to pack, and stay within its budget.
func (b *packedBed) serves(t *testing.T, o Options, what string) (source int64) {
	t.Helper()
	restarted(t, o, b.dataset, b.text, map[string]int{o.Dirs[0]: b.epoch}, func(dir string, epoch int, l losing, c *deliver.Client) {
		source = l.packsOn(t, dir, c, epoch, b.order)
	})
	if t.Failed() {
		t.Fatal(what)
	}
	return source
}

// damages lists possible damage to the arena and to the journal of packages, by name: the file, and its damaged content.
func (b *packedBed) damages(r *rand.Rand) map[string]func() (name string, data []byte) {
	const block = 128 << 10
	arena, journal := b.first("arena"), b.first(packagesName)
	all := map[string]func() (string, []byte){
		"the journal of packages is empty":    func() (string, []byte) { return journal, nil },
		"the journal of packages is an older": func() (string, []byte) { return journal, b.early[journal] },
		"the journal of packages is cut":      func() (string, []byte) { return journal, b.files[journal][:r.IntN(len(b.files[journal]))] },
		"the arena is an older":               func() (string, []byte) { return arena, b.early[arena] },
	}
	changed := func(name string, change func(data []byte)) func() (string, []byte) {
		return func() (string, []byte) {
			data := bytes.Clone(b.files[name])
			change(data)
			return name, data
		}
	}
	all["the journal of packages has a byte flipped"] = changed(journal, func(data []byte) { data[r.IntN(len(data))] ^= 1 << r.IntN(8) })
	for at := 0; at+block <= len(b.files[arena]); at += block {
		if whole := b.files[arena][at : at+block]; !bytes.Equal(whole, make([]byte, block)) {
			all[fmt.Sprintf("block %d is zero", at/block)] = changed(arena, func(data []byte) { clear(data[at : at+block]) })
			all[fmt.Sprintf("block %d is another one", at/block)] = changed(arena, func(data []byte) { copy(data[at:at+block], data[r.IntN(at/block+1)*block:]) })
			all[fmt.Sprintf("some bytes of block %d are random", at/block)] = changed(arena, func(data []byte) {
				from := at + r.IntN(block)
				noise(r, data[from:min(from+1+r.IntN(50_000), at+block)])
			})
		}
	}
	return all
}

// TestPackagesDamaged: the arena, or the journal of packages, is damaged, and a server starts over packages that a job has filled. It delivers the right bytes in the same order. By default some random damages;
// LCACHE_FAULTS=all damages each block.
func TestPackagesDamaged(t *testing.T) {
	testenv.Long(t)
	seed, _ := drawSeed(t)
	t.Logf("LCACHE_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	b := newPackedBed(t)
	root := filepath.Join(t.TempDir(), "copy")
	if n := b.serves(t, b.spoiled(t, root, "", nil), "nothing is damaged"); n > 0 {
		t.Errorf("%d samples were read from the source, nothing is damaged", n)
	}
	damages, source, most := b.damages(r), int64(0), 7
	whats := slices.Sorted(maps.Keys(damages))
	r.Shuffle(len(whats), func(i, j int) { whats[i], whats[j] = whats[j], whats[i] })
	slices.SortStableFunc(whats, func(a, b string) int { return -cmp.Compare(a[:3], b[:3]) }) // first the damage to the journal and to the whole arena
	if !thorough() {
		whats = whats[:most]
	}
	for _, what := range whats {
		name, data := damages[what]()
		n := b.serves(t, b.spoiled(t, root, name, data), what)
		t.Logf("%s: %d samples were read from the source", what, n)
		source += n
	}
	if source == 0 {
		t.Error("nothing was read from the source, whatever was damaged")
	}
	o := b.spoiled(t, root, "", nil)
	if err := os.Remove(filepath.Join(root, b.first(packagesName))); err != nil {
		t.Fatal(err)
	}
	if n := b.serves(t, o, "the journal of packages is missing"); n == 0 {
		t.Error("nothing was read from the source without a journal of packages")
	}
}
