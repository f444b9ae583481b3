package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"lcache/sample"
)

// walk finds the folders of a directory and their files, several at a time. A goroutine that finds work hands it to another
// if one of the jobs is free and does it itself if not, so nothing waits in a queue and nothing waits for a job.
type walk struct {
	dir    *dir
	group  *errgroup.Group
	before *earlier // nil: nothing was listed before
	start  time.Time

	mu       sync.Mutex // guards the fields that follow
	folders  []folder
	found    int
	progress func(int)
}

// folder is one directory's samples, sorted.
type folder struct {
	label int32
	path  string // relative to the root, "" for the root itself
	files []sample.Entry
	now   Folder
	kept  *known // it is as it was: files are to be taken from there
}

// place is a folder on the way down, for finding loops.
type place struct {
	parent   *place
	dev, ino uint64
}

// scanned is what one folder holds.
type scanned struct {
	self    *place
	now     Folder
	kept    *known         // of the listing before: files are not given
	files   []sample.Entry // sorted
	subs    []string       // folders, by their paths
	problem error          // of a file that can't be a sample
}

// batchSize names are looked at one after the other; a larger folder is shared among the jobs.
const batchSize = 1024

// newWalk also gives the walk's context, which ends with its first error.
func newWalk(ctx context.Context, d *dir, before *earlier, progress func(int)) (*walk, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(d.opts.Jobs)
	if progress == nil {
		progress = func(int) {}
	}
	return &walk{dir: d, group: group, before: before, start: time.Now(), progress: progress}, ctx
}

// all walks through these folders and everything below, and waits for the end. It runs as a job itself, so that the first error
// anywhere is the one that is returned, and ends the others.
func (w *walk) all(ctx context.Context, parent *place, paths []string, label func(path string) int32) error {
	w.group.Go(func() error {
		return w.each(paths, func(path string) error { return w.walk(ctx, path, parent, label(path)) })
	})
	return w.group.Wait()
}

// each calls do for every path, here or in another job.
func (w *walk) each(paths []string, do func(path string) error) error {
	for _, path := range paths {
		if w.group.TryGo(func() error { return do(path) }) {
			continue
		}
		if err := do(path); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) walk(ctx context.Context, path string, parent *place, label int32) error {
	s, err := w.scan(ctx, path, parent)
	if err == nil {
		err = s.problem
	}
	if err != nil {
		return err
	}
	w.keep(folder{label: label, path: path, files: s.files, now: s.now, kept: s.kept})
	return w.each(s.subs, func(sub string) error { return w.walk(ctx, sub, s.self, label) })
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
func (w *walk) scan(ctx context.Context, path string, parent *place) (*scanned, error) {
	f, err := w.dir.root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", clip(path), adviseList(err))
	}
	defer f.Close()
	s := &scanned{self: &place{parent: parent}}
	prefix, name := path+"/", path
	if path == "." {
		prefix, name = "", ""
	}
	var st unix.Stat_t
	if err := s.self.identify(f, &st); err != nil {
		return nil, fmt.Errorf("folder %s: %w", clip(path), err)
	}
	s.now = folderNow(name, &st, w.start)
	if k, same := w.before.find(s.now); same {
		s.kept, s.subs = &k, k.subs
		w.count(k.Samples)
		return s, ctx.Err()
	}
	if err := w.batches(ctx, f, prefix, s); err != nil {
		return nil, err
	}
	if w.dir.opts.Group == GroupStem {
		n := len(s.files)
		if s.files, err = group(s.files, len(prefix)); err != nil {
			return nil, err
		}
		w.count(len(s.files) - n)
		return s, nil
	}
	slices.SortFunc(s.files, func(a, b sample.Entry) int { return comparePython(a.Name, b.Name) })
	return s, nil
}

func (p *place) identify(f *os.File, st *unix.Stat_t) error {
	if err := unix.Fstat(int(f.Fd()), st); err != nil {
		return err
	}
	p.dev, p.ino = uint64(st.Dev), st.Ino
	for up := p.parent; up != nil; up = up.parent {
		if up.dev == p.dev && up.ino == p.ino {
			return errors.New("it leads back to a folder above it, a loop: remove the link")
		}
	}
	return nil
}

// batches reads the names of an open folder and looks at them, batch by batch, in as many jobs as are free.
func (w *walk) batches(ctx context.Context, f *os.File, prefix string, s *scanned) error {
	var (
		mu     sync.Mutex // guards s and failed
		failed error
		wg     sync.WaitGroup // f must stay open for the batches of other jobs
	)
	look := func(names []string) error {
		defer wg.Done()
		part, err := w.look(ctx, f, prefix, names)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if failed == nil {
				failed = err
			}
			return err
		}
		s.files, s.subs = append(s.files, part.files...), append(s.subs, part.subs...)
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
	return ctx.Err() // an empty folder too ends a walk that was cancelled
}

// look finds out what these names in an open folder are.
func (w *walk) look(ctx context.Context, f *os.File, prefix string, names []string) (scanned, error) {
	var s scanned
	s.files = make([]sample.Entry, 0, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		kept := hasExt(name, w.dir.opts.Exts)
		k, err := w.lookAt(f, prefix, name)
		switch {
		case errors.Is(err, errOutside):
			// Whether it is a folder, which would be a class, can't be known.
			return s, &SampleError{prefix + name, "list", err}
		case err != nil:
			if kept && s.problem == nil {
				s.problem = &SampleError{prefix + name, "list", err}
			}
		case k.folder:
			s.subs = append(s.subs, prefix+name)
		case kept:
			s.files = append(s.files, sample.Entry{Name: name, Size: k.size, Version: k.version})
		}
	}
	joinNames(prefix, s.files)
	return s, nil
}

// joinNames puts the folder's path before its files' names: one allocation for all of them, since a listing has many millions.
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

// kind is what a name stands for.
type kind struct {
	folder  bool
	size    uint32
	version uint64
}

// lookAt never leaves the folder: what is not a link is looked at through the open folder, a link through the root.
func (w *walk) lookAt(f *os.File, prefix, name string) (kind, error) {
	if len(prefix)+len(name) > sample.MaxName {
		return kind{}, fmt.Errorf("its path has %d bytes, at most %d: shorten it", len(prefix)+len(name), sample.MaxName)
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return kind{}, adviseList(err)
	}
	mode, size, mtime := st.Mode&unix.S_IFMT, st.Size, st.Mtim.Nano()
	if mode == unix.S_IFLNK {
		fi, err := w.dir.root.Stat(prefix + name)
		if err != nil {
			return kind{}, linkError(err)
		}
		target := fi.Sys().(*syscall.Stat_t)
		mode, size, mtime = target.Mode&unix.S_IFMT, target.Size, target.Mtim.Nano()
	}
	switch {
	case mode == unix.S_IFDIR:
		return kind{folder: true}, nil
	case mode != unix.S_IFREG:
		return kind{}, errors.New("it is no regular file: remove it, or keep only some extensions")
	case size > math.MaxUint32:
		return kind{}, fmt.Errorf("it has %d bytes, and a sample must have less than 4 GiB: split it", size)
	}
	return kind{size: uint32(size), version: uint64(mtime)}, nil
}

func linkError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is a link to nothing: repair or remove it")
	}
	return advise(err)
}

func adviseList(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it vanished while the source was listed: list it again", cause(err))
	}
	return advise(err)
}
