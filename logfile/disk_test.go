package logfile

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"lcache/blockio"
)

const page, sector = 4096, 512

// disk is a model of what may be on stable storage while a Store runs: for each file what is durable for certain, and behind that the
// changes that may have got there, or not, or in part. It learns of them by blockio's seam and by tracer.
type disk struct {
	mu      sync.Mutex
	names   map[string]*inode // the directory's durable state
	now     map[string]*inode // as the process sees it
	unsaved []change          // renames, creations and removals since the last sync of the directory
	inodes  []*inode          // those of unsaved; nil for a removal
	step    func()            // called with mu held before each change
}

// inode is a file: a page that changes touch is after a crash as after any number of them, the last of these torn or not.
type inode struct {
	durable []byte
	pending []*pageUpdate
}

type pageUpdate struct {
	off      int64
	data     []byte
	truncate bool
	landed   bool // the kernel has said that it is done
}

func newDisk() *disk {
	return &disk{names: map[string]*inode{}, now: map[string]*inode{}}
}

// load takes the files of dirs as they are for durable.
func (d *disk) load(t testing.TB, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			d.names[filepath.Join(dir, e.Name())] = &inode{durable: b}
		}
	}
	d.now = maps.Clone(d.names)
}

// trace is the disk's ear for everything but arenas.
func (d *disk) trace(c change) error {
	if c.kind == changeSyncing {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.step != nil {
		d.step()
	}
	switch c.kind {
	case changeWrite:
		d.now[c.path].add(&pageUpdate{off: c.off, data: slices.Clone(c.data), landed: true})
	case changeTruncate:
		d.now[c.path].add(&pageUpdate{off: c.off, truncate: true, landed: true})
	case changeSync:
		d.now[c.path].settle(nil)
	case changeSyncDir:
		d.save(len(d.unsaved))
	case changeCreate:
		d.now[c.path] = &inode{}
		d.unsaved, d.inodes = append(d.unsaved, c), append(d.inodes, d.now[c.path])
	case changeRename:
		d.now[c.to] = d.now[c.path]
		delete(d.now, c.path)
		d.unsaved, d.inodes = append(d.unsaved, c), append(d.inodes, d.now[c.to])
	case changeRemove:
		delete(d.now, c.path)
		d.unsaved, d.inodes = append(d.unsaved, c), append(d.inodes, nil)
	}
	return nil
}

// save makes the first n changes of the directory durable.
func (d *disk) save(n int) {
	applyNames(d.names, d.unsaved[:n], d.inodes[:n])
	d.unsaved, d.inodes = d.unsaved[n:], d.inodes[n:]
}

func applyNames(names map[string]*inode, changes []change, inodes []*inode) {
	for i, c := range changes {
		switch c.kind {
		case changeCreate:
			names[c.path] = inodes[i]
		case changeRename:
			delete(names, c.path)
			names[c.to] = inodes[i]
		case changeRemove:
			delete(names, c.path)
		}
	}
}

// watch is the disk's ear for arenas. Transfers in flight may be on disk; a sync covers what had landed when it was asked for.
func (d *disk) watch(io *blockio.IO) {
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		if !op.Write {
			return blockio.Fault{}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.step != nil {
			d.step()
		}
		f, done := d.now[op.File.Name()], op.Done
		if op.Buf == nil {
			covered := map[*pageUpdate]bool{}
			for _, u := range f.pending {
				covered[u] = u.landed
			}
			op.Done = func(op *blockio.Op, err error) {
				if err == nil {
					d.mu.Lock()
					f.settle(covered)
					d.mu.Unlock()
				}
				done(op, err)
			}
			return blockio.Fault{}
		}
		u := &pageUpdate{off: op.Offset, data: slices.Clone(op.Buf)}
		f.add(u)
		op.Done = func(op *blockio.Op, err error) {
			d.mu.Lock()
			u.landed = err == nil
			d.mu.Unlock()
			done(op, err)
		}
		return blockio.Fault{}
	})
}

func (f *inode) add(u *pageUpdate) { f.pending = append(f.pending, u) }

// settle makes the updates of a set durable; nil means all.
func (f *inode) settle(set map[*pageUpdate]bool) {
	var rest []*pageUpdate
	for _, u := range f.pending {
		if set != nil && !set[u] {
			rest = append(rest, u)
			continue
		}
		f.durable = u.apply(f.durable)
	}
	f.pending = rest
}

// apply returns b after the update, in b's memory or not.
func (u *pageUpdate) apply(b []byte) []byte {
	if u.truncate {
		return b[:min(int64(len(b)), u.off)]
	}
	if end := int(u.off) + len(u.data); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[u.off:], u.data)
	return b
}

// image is what a crash leaves: files by path.
type image map[string][]byte

// crash draws an image: each page with changes that nothing made durable keeps them with probability keep, and else an earlier state of
// it. d.mu is held.
func (d *disk) crash(r *rand.Rand, keep float64) image {
	names := maps.Clone(d.names)
	n := r.IntN(len(d.unsaved) + 1)
	applyNames(names, d.unsaved[:n], d.inodes[:n])
	out := image{}
	for _, path := range slices.Sorted(maps.Keys(names)) { // sorted, so that a seed gives the same image
		out[path] = names[path].crash(r, keep)
	}
	return out
}

func (f *inode) crash(r *rand.Rand, keep float64) []byte {
	if len(f.pending) == 0 {
		return slices.Clone(f.durable)
	}
	// The length and each page are on their own.
	size := len(f.durable)
	for _, u := range f.pending[:r.IntN(len(f.pending)+1)] {
		size = len(u.apply(make([]byte, size)))
	}
	out := make([]byte, size)
	copy(out, f.durable)
	for p := 0; p < size; p += page {
		f.crashPage(r, keep, out, p)
	}
	return out
}

// crashPage decides about the page at p.
func (f *inode) crashPage(r *rand.Rand, keep float64, out []byte, p int) {
	var touching []*pageUpdate
	for _, u := range f.pending {
		if u.truncate && int(u.off) < p+page || !u.truncate && int(u.off) < p+page && int(u.off)+len(u.data) > p {
			touching = append(touching, u)
		}
	}
	if len(touching) == 0 {
		return
	}
	n := len(touching)
	if r.Float64() >= keep {
		n = r.IntN(len(touching))
	}
	var before, after [page]byte
	copy(after[:], f.durable[min(p, len(f.durable)):min(p+page, len(f.durable))])
	for _, u := range touching[:n] {
		before = after
		u.applyPage(after[:], p)
	}
	dst := out[p:min(p+page, len(out))]
	copy(dst, after[:])
	if n > 0 && r.IntN(4) == 0 { // torn: the last change came to some of the sectors only
		for s := 0; s < len(dst); s += sector {
			if r.IntN(2) == 0 {
				copy(dst[s:min(s+sector, len(dst))], before[s:])
			}
		}
	}
}

func (u *pageUpdate) applyPage(b []byte, p int) {
	from, to := max(int(u.off), p), p+page
	if u.truncate {
		clear(b[from-p:])
		return
	}
	to = min(to, int(u.off)+len(u.data))
	copy(b[from-p:to-p], u.data[from-int(u.off):])
}

// write puts the image below root: its paths lie below old.
func (m image) write(t testing.TB, old, root string) {
	t.Helper()
	for path, b := range m {
		rel, err := filepath.Rel(old, path)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
