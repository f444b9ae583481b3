// Package durabletest computes the possible states of files after a power cut, for files that are changed through package durable. A [Disk]
// receives the steps of a test's writers, as a [durable.Trace] or, for bytes that are written by other means, by StartWrite and StartSync.
// Crash then returns a random [Image] of the possible states of the disk. Changes that no sync has covered may be there, be lost, or be torn
// at a sector. Kill returns a random state after the process was killed. All methods may be called concurrently.
package durabletest

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"lcache/internal/disk/durable"
)

const page, sector = 4096, 512

// Disk is a model of stable storage. For each file it has the bytes that are certainly durable, and the later
// changes. Each of these may be on the disk completely, partly or not at all.
type Disk struct {
	Step func() // called before each change while the Disk is locked; nil: nothing is called. Set it before the first change

	mu      sync.Mutex        // guards the fields that follow
	names   map[string]*inode // the directories' durable state
	now     map[string]*inode // the state that the process sees
	unsaved []naming          // since the last sync of their directory
}

// naming is a change of a directory.
type naming struct {
	change durable.Change
	file   *inode // nil for a removal
}

// dir returns the changed directory.
func (n naming) dir() string { return filepath.Dir(n.change.Path) }

// inode is a file. After a crash a page has any number of the changes that touch it, and the last of these may be torn.
type inode struct {
	durable []byte
	pending []*update
}

// update is a change of a file's bytes, or of its length.
type update struct {
	off      int64
	data     []byte
	truncate bool // to the length off
	landed   bool // the kernel has reported it complete
}

// New returns a Disk without files.
func New() *Disk {
	return &Disk{names: map[string]*inode{}, now: map[string]*inode{}}
}

// Load adds the files in dirs, as durable.
func (d *Disk) Load(t testing.TB, dirs ...string) {
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

// Trace is a [durable.Trace].
func (d *Disk) Trace(c durable.Change) error {
	if c.Step == durable.StepSync {
		return nil
	}
	d.Locked(func() {
		d.step()
		switch c.Step {
		case durable.StepWrite:
			d.file(c.Path).add(&update{off: c.Off, data: slices.Clone(c.Data), landed: true})
		case durable.StepTruncate:
			d.file(c.Path).add(&update{off: c.Off, truncate: true, landed: true})
		case durable.StepSynced:
			d.file(c.Path).settle(nil)
		case durable.StepSyncedDir:
			d.saveDir(c.Path)
		default:
			d.rename(c)
		}
	})
	return nil
}

// Locked calls f while no change happens.
func (d *Disk) Locked(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *Disk) step() {
	if d.Step != nil {
		d.Step()
	}
}

// file returns the file at a path. A removed file may still be written to by a process that has it open; after a crash it is gone. d.mu is held.
func (d *Disk) file(path string) *inode {
	if f := d.now[path]; f != nil {
		return f
	}
	return &inode{}
}

// rename changes a directory. d.mu is held.
func (d *Disk) rename(c durable.Change) {
	n := naming{change: c}
	switch c.Step {
	case durable.StepCreate:
		n.file = &inode{}
	case durable.StepRename:
		n.file = d.now[c.Path]
	}
	n.apply(d.now)
	d.unsaved = append(d.unsaved, n)
}

// saveDir makes the changes of a directory durable. d.mu is held.
func (d *Disk) saveDir(dir string) {
	d.unsaved = slices.DeleteFunc(d.unsaved, func(n naming) bool {
		if n.dir() != dir {
			return false
		}
		n.apply(d.names)
		return true
	})
}

func (n naming) apply(names map[string]*inode) {
	switch n.change.Step {
	case durable.StepCreate:
		names[n.change.Path] = n.file
	case durable.StepRename:
		delete(names, n.change.Path)
		names[n.change.To] = n.file
	case durable.StepRemove:
		delete(names, n.change.Path)
	}
}

// StartWrite records a write in flight to the file at path: from now on a crash may find it on disk. The caller calls landed when the write completes.
func (d *Disk) StartWrite(path string, off int64, data []byte) (landed func()) {
	u := &update{off: off, data: slices.Clone(data)}
	d.Locked(func() {
		d.step()
		d.file(path).add(u)
	})
	return func() { d.Locked(func() { u.landed = true }) }
}

// StartSync records a sync of the file at path. It covers the writes that have landed before. The caller calls synced when the sync succeeds.
func (d *Disk) StartSync(path string) (synced func()) {
	var f *inode
	covered := map[*update]bool{}
	d.Locked(func() {
		d.step()
		f = d.file(path)
		for _, u := range f.pending {
			covered[u] = u.landed
		}
	})
	return func() { d.Locked(func() { f.settle(covered) }) }
}

func (f *inode) add(u *update) { f.pending = append(f.pending, u) }

// settle makes the updates in set durable; nil means all.
func (f *inode) settle(set map[*update]bool) {
	var rest []*update
	for _, u := range f.pending {
		if set != nil && !set[u] {
			rest = append(rest, u)
			continue
		}
		f.durable = u.apply(f.durable)
	}
	f.pending = rest
}

// apply returns b after the update. It may reuse the memory of b.
func (u *update) apply(b []byte) []byte {
	if u.truncate {
		if grown := int(u.off) - len(b); grown > 0 {
			return append(b, make([]byte, grown)...)
		}
		return b[:u.off]
	}
	if end := int(u.off) + len(u.data); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[u.off:], u.data)
	return b
}

// Image is the state after a crash: the bytes of each file, by path.
type Image map[string][]byte

// Crash returns a random Image. A page with changes that no sync has covered keeps them all with probability keep; otherwise it has an earlier
// state. Call Crash from Step or inside Locked.
func (d *Disk) Crash(r *rand.Rand, keep float64) Image {
	names := maps.Clone(d.names)
	for _, n := range d.unsaved[:r.IntN(len(d.unsaved)+1)] {
		n.apply(names)
	}
	out := Image{}
	for _, path := range slices.Sorted(maps.Keys(names)) { // sorted, so that a seed gives the same image
		out[path] = names[path].crash(r, keep)
	}
	return out
}

// Kill returns a random state after the process was killed and the machine kept running: all data that was handed to the kernel. A write in
// flight may have reached some of its sectors, all or none. Call Kill from Step or inside Locked.
func (d *Disk) Kill(r *rand.Rand) Image {
	out := Image{}
	for _, path := range slices.Sorted(maps.Keys(d.now)) { // sorted, so that a seed gives the same image
		out[path] = d.now[path].kill(r)
	}
	return out
}

func (f *inode) kill(r *rand.Rand) []byte {
	out := slices.Clone(f.durable)
	for _, u := range f.pending {
		if part := r.IntN(3); u.landed || part == 0 {
			out = u.apply(out)
		} else if part == 1 {
			for from := 0; from < len(u.data); from += sector {
				if r.IntN(2) == 0 {
					out = (&update{off: u.off + int64(from), data: u.data[from:min(from+sector, len(u.data))]}).apply(out)
				}
			}
		}
	}
	return out
}

func (f *inode) crash(r *rand.Rand, keep float64) []byte {
	if len(f.pending) == 0 {
		return slices.Clone(f.durable)
	}
	// The length and each page are independent.
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

// crashPage chooses the state of the page at p.
func (f *inode) crashPage(r *rand.Rand, keep float64, out []byte, p int) {
	var touching []*update
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
	if n > 0 && r.IntN(4) == 0 { // torn: the last change reached only some of the sectors
		for s := 0; s < len(dst); s += sector {
			if r.IntN(2) == 0 {
				copy(dst[s:min(s+sector, len(dst))], before[s:])
			}
		}
	}
}

func (u *update) applyPage(b []byte, p int) {
	from, to := max(int(u.off), p), p+page
	if u.truncate {
		clear(b[from-p:])
		return
	}
	to = min(to, int(u.off)+len(u.data))
	copy(b[from-p:to-p], u.data[from-int(u.off):])
}

// Write writes the files below root, at their paths relative to old.
func (m Image) Write(t testing.TB, old, root string) {
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
