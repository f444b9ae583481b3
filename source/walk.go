package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"lcache/sample"
)

// walk finds the folders of a directory and their files, with several goroutines (jobs). A goroutine that finds work
// gives it to another one if a job is free, and otherwise does it itself. So nothing is queued, and no goroutine
// waits for a job.
type walk struct {
	dir      *dir
	group    *errgroup.Group
	before   *earlier      // nil: no earlier listing
	excluded []unix.Stat_t // folders that must not be listed
	start    time.Time

	dangling dangling

	mu       sync.Mutex // guards the fields that follow
	folders  []folder
	found    int
	progress func(int)
}

// folder has the samples of one directory, sorted.
type folder struct {
	label int32
	path  string // relative to the root; "" for the root itself
	files []sample.Entry
	now   Folder
	kept  *known // unchanged: its files come from the listing before

	removed int // files that Options.Exts excludes
}

// scanned is the content of one folder.
type scanned struct {
	self    *place
	now     Folder
	kept    *known         // unchanged since the listing before, so files is empty
	files   []sample.Entry // sorted
	subs    []sub
	problem error           // of a file that can't be a sample
	links   int             // number of names that are links
	removed int             // files that Options.Exts excludes
	outside int             // files outside the source; if files are grouped:
	stems   map[string]bool // their stems
}

// sub is a subfolder.
type sub struct {
	path  string
	reach Reach
	link  bool // this name is a link
}

// batchSize is the number of names that one job examines. A larger folder is divided among the jobs.
const batchSize = 1024

// newWalk also returns the walk's context, which ends with its first error.
func newWalk(ctx context.Context, d *dir, before *earlier, progress func(int)) (*walk, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(d.opts.Jobs)
	if progress == nil {
		progress = func(int) {}
	}
	w := &walk{dir: d, group: group, before: before, start: time.Now(), progress: progress}
	for _, path := range d.opts.Excluded {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			w.excluded = append(w.excluded, st)
		}
	}
	return w, ctx
}

func (w *walk) isExcluded(st *unix.Stat_t) bool {
	return slices.ContainsFunc(w.excluded, func(a unix.Stat_t) bool { return a.Dev == st.Dev && a.Ino == st.Ino })
}

// all walks through these folders and everything below them, and waits for the end. It runs as a job itself, so that
// the first error anywhere is returned and ends the others.
func (w *walk) all(ctx context.Context, parent *place, subs []sub, label func(path string) int32) error {
	w.group.Go(func() error {
		return w.each(subs, func(s sub) error { return w.walk(ctx, s, parent, label(s.path)) })
	})
	if err := w.group.Wait(); err != nil {
		return err
	}
	return w.dangling.err(w.dir.path)
}

// each calls do for every folder, here or in another job.
func (w *walk) each(subs []sub, do func(sub) error) error {
	for _, s := range subs {
		if w.group.TryGo(func() error { return do(s) }) {
			continue
		}
		if err := do(s); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) walk(ctx context.Context, at sub, parent *place, label int32) error {
	s, err := w.scan(ctx, at, parent)
	if err == nil {
		err = s.problem
	}
	if err != nil {
		return err
	}
	w.keep(folder{label: label, path: at.path, files: s.files, now: s.now, kept: s.kept, removed: s.removed})
	return w.each(s.subs, func(sub sub) error { return w.walk(ctx, sub, s.self, label) })
}

func (w *walk) keep(f folder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.folders = append(w.folders, f)
}

func (w *walk) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found += n
	w.progress(w.found)
}

// scan reads one folder, "." for the root.
func (w *walk) scan(ctx context.Context, at sub, parent *place) (*scanned, error) {
	path := at.path
	of, err := w.dir.open(path, asFolder)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", clip(path), adviseList(err))
	}
	f := of.file(path)
	defer f.Close()
	st, err := of.stat()
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", clip(path), err)
	}
	s := &scanned{self: &place{parent: parent, reach: at.reach, path: path}}
	switch {
	case at.link:
		s.self.link = path
	case parent != nil:
		s.self.link = parent.link
	}
	if err := s.self.identify(&st); err != nil {
		return nil, err
	}
	if w.isExcluded(&st) {
		return nil, fmt.Errorf("folder %s is the cache itself, which would be listed as samples: give another --cache, or remove the link %s", clip(path), clip(s.self.link))
	}
	prefix, name := path+"/", path
	if path == "." {
		prefix, name = "", ""
	}
	s.now = folderNow(name, &st, w.start)
	s.now.Device, s.now.Reach = w.dir.device(uint64(st.Dev)), at.reach
	if k, same := w.before.find(s.now); same {
		s.kept, s.now.Outside = &k, k.Outside
		for _, path := range k.subs {
			s.subs = append(s.subs, sub{path: path, reach: at.reach})
		}
		w.count(k.Samples)
		return s, ctx.Err()
	}
	if err := w.batches(ctx, f, prefix, s); err != nil {
		return nil, err
	}
	if err := w.order(s, prefix); err != nil {
		return nil, err
	}
	s.now.Links, s.now.Outside = s.links, s.countOutside()
	return s, nil
}

// order groups the files of a folder into samples, or sorts them.
func (w *walk) order(s *scanned, prefix string) (err error) {
	if w.dir.opts.Group != GroupStem {
		slices.SortFunc(s.files, func(a, b sample.Entry) int { return comparePython(a.Name, b.Name) })
		return nil
	}
	n := len(s.files)
	if s.files, err = group(s.files, len(prefix)); err == nil {
		w.count(len(s.files) - n)
	}
	return err
}

// batches reads the names of an open folder and examines them in batches, in as many jobs as are free.
func (w *walk) batches(ctx context.Context, f *os.File, prefix string, s *scanned) error {
	var (
		mu     sync.Mutex // guards s and failed
		failed error
		wg     sync.WaitGroup // f must stay open for the batches of other jobs
	)
	look := func(names []string) error {
		defer wg.Done()
		part, err := w.look(ctx, f, prefix, s.self.reach, names)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if failed == nil {
				failed = err
			}
			return err
		}
		s.files, s.subs = append(s.files, part.files...), append(s.subs, part.subs...)
		s.links, s.outside, s.removed = s.links+part.links, s.outside+part.outside, s.removed+part.removed
		if s.stems == nil {
			s.stems = part.stems
		} else {
			maps.Copy(s.stems, part.stems)
		}
		if s.problem == nil {
			s.problem = part.problem
		}
		w.count(len(part.files))
		return nil
	}
	var err error
	for err == nil {
		var names []string
		if names, err = f.Readdirnames(batchSize); err != nil {
			break
		}
		wg.Add(1)
		if !w.group.TryGo(func() error { return look(names) }) {
			err = look(names)
		}
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	if err != io.EOF {
		return fmt.Errorf("read folder %s: %w", clip(f.Name()), adviseList(err))
	}
	return ctx.Err() // so that a cancelled walk also ends at an empty folder
}

// look examines names in an open folder. reach is how the folder is reached.
func (w *walk) look(ctx context.Context, f *os.File, prefix string, reach Reach, names []string) (scanned, error) {
	var s scanned
	s.files = make([]sample.Entry, 0, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		kept := hasExt(name, w.dir.opts.Exts)
		k, err := w.lookAt(f, prefix, name, reach)
		if k.link {
			s.links++
		}
		if !kept && !k.folder {
			s.removed++
		}
		switch {
		case errors.Is(err, errDangling):
			if w.matters(name) {
				w.dangling.add(prefix + name)
			}
		case errors.Is(err, errOutside):
			// It may be a folder, and so a class, but that can't be known.
			return s, &SampleError{prefix + name, "list", err}
		case err != nil:
			if kept && s.problem == nil {
				s.problem = &SampleError{prefix + name, "list", err}
			}
		case k.folder:
			s.subs = append(s.subs, sub{prefix + name, k.reach, k.link})
		case kept:
			s.files = append(s.files, sample.Entry{Name: name, Size: k.size, Version: k.version, Inode: k.inode})
			if k.reach == Outside && reach != Outside {
				s.noteOutside(w, prefix+name, len(prefix))
			}
		}
	}
	joinNames(prefix, s.files)
	return s, nil
}

// joinNames adds the folder's path to the names of its files, with one allocation for all, because a listing may have
// many millions.
func joinNames(prefix string, files []sample.Entry) {
	size := 0
	for i := range files {
		size += len(prefix) + len(files[i].Name)
	}
	var b strings.Builder
	b.Grow(size)
	for i := range files {
		from := b.Len()
		b.WriteString(prefix)
		b.WriteString(files[i].Name)
		files[i].Name = b.String()[from:]
	}
}

// kind is the type of a file.
type kind struct {
	folder  bool
	link    bool
	reach   Reach
	size    uint32
	version uint64
	inode   uint64
}

// lookAt finds the kind of a file without opening it, because it may be a fifo or a device.
func (w *walk) lookAt(f *os.File, prefix, name string, folder Reach) (kind, error) {
	if len(prefix)+len(name) > sample.MaxName {
		return kind{}, fmt.Errorf("its path has %d bytes, at most %d: shorten it", len(prefix)+len(name), sample.MaxName)
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return kind{}, adviseList(err)
	}
	k := kind{reach: folder}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		k.link = true
		if err := w.dir.statLink(int(f.Fd()), prefix+name, name, &st); err != nil {
			return k, err
		}
		k.reach = w.dir.reach(folder, prefix+name)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		k.folder = true
		return k, nil
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return k, errors.New("it is not a regular file: remove it, or keep only some extensions")
	case st.Size > math.MaxUint32:
		return k, fmt.Errorf("it has %d bytes, and a sample must have less than 4 GiB: split it", st.Size)
	}
	k.size = uint32(st.Size)
	flags := 0
	if !k.link {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	k.version, k.inode = w.dir.version(&st, k.reach != Directly, func(fs *unix.Statfs_t) error { return unix.Statfs(w.dir.path+"/"+prefix+name, fs) },
		func() uint64 { return born(int(f.Fd()), name, flags) })
	return k, nil
}

func adviseList(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it vanished while the source was listed: list it again", cause(err))
	}
	return advise(err)
}
