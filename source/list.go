package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lcache/internal/errcode"
	"lcache/sample"
)

// List gives the order of torchvision's ImageFolder: the folders at the top are the classes, sorted as Python sorts them;
// within a class come its folders sorted by their whole path (so "a", "a-b", "a/b": not the order of a depth-first walk),
// and within a folder its files, sorted. Links are followed, to folders and to files. Files next to the class folders are left out.
// As there, a class folder without a file is an error. Other than there, so is what would be left out silently or would
// fail later: what can't be read, a link to nothing, a loop of links, what is not a regular file. A file of labels changes the
// classes and labels and leaves the order as it is; then a top folder without a file is no error.
func (d *dir) List(ctx context.Context, progress func(samples int)) ([]string, []sample.Entry, error) {
	l, err := d.relist(ctx, nil, progress)
	if err != nil {
		return nil, nil, err
	}
	return l.Classes, l.Entries, nil
}

func (d *dir) relist(ctx context.Context, b *Before, progress func(samples int)) (*Listing, error) {
	before := newEarlier(b)
	classes, folders, leftOut, err := d.list(ctx, before, progress)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(d.path), err)
	}
	// The order is that of (class, folder's path); a folder's own files are sorted already.
	slices.SortFunc(folders, func(a, b folder) int {
		return cmp.Or(cmp.Compare(a.label, b.label), comparePython(a.path, b.path))
	})
	removed := 0
	for _, f := range folders {
		removed += f.removed
	}
	if before != nil && d.opts.Labels == "" && !b.Labelled {
		same, err := before.same(folders)
		if err != nil {
			return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s again: %w", clip(d.path), err)
		}
		if same {
			return &Listing{Folders: b.Folders, Outside: countOutside(b.Folders), LeftOut: leftOut, Removed: removed, Same: true}, nil
		}
	}
	if before != nil {
		if err := before.complete(folders); err != nil {
			return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s again: %w", clip(d.path), err)
		}
	}
	l := &Listing{Classes: classes, LeftOut: leftOut, Removed: removed}
	if l.Entries, l.Folders, err = d.join(classes, folders); err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(d.path), err)
	}
	l.Outside = countOutside(l.Folders)
	if d.opts.Labels != "" {
		if l.Classes, err = applyLabels(d.opts.Labels, l.Entries); err != nil {
			return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(d.path), err)
		}
	}
	return l, nil
}

// join makes one list of the folders' files.
func (d *dir) join(classes []string, folders []folder) (entries []sample.Entry, listed []Folder, err error) {
	total := 0
	for _, f := range folders {
		total += len(f.files)
	}
	full := make([]bool, len(classes))
	for _, f := range folders {
		if len(classes) > 0 && f.label >= 0 && len(f.files) > 0 {
			full[f.label] = true
		}
	}
	if err := d.opts.checkFound(classes, full, total); err != nil {
		if there := d.instead(folders); there != "" && errors.Is(err, ErrEmpty) {
			err = fmt.Errorf("%w: %s", err, there)
		}
		return nil, nil, err
	}
	entries, listed = make([]sample.Entry, 0, total), make([]Folder, 0, len(folders))
	for i, f := range folders {
		for j := range f.files {
			f.files[j].Label = max(f.label, 0)
		}
		entries = append(entries, f.files...)
		f.now.Samples = len(f.files)
		listed = append(listed, f.now)
		folders[i].files = nil // a listing of many millions should not be held twice
	}
	return entries, listed, nil
}

// list finds all folders, in any order. leftOut is as in Listing.
func (d *dir) list(ctx context.Context, before *earlier, progress func(int)) (classes []string, folders []folder, leftOut int, err error) {
	w, ctx := newWalk(ctx, d, before, progress)
	top, err := w.scan(ctx, sub{path: "."}, nil)
	if err != nil {
		w.group.Wait() // no goroutine runs; Wait frees the context
		return nil, nil, 0, err
	}
	if !d.opts.Flat {
		for _, s := range top.subs {
			classes = append(classes, s.path)
		}
		slices.SortFunc(classes, comparePython)
	}
	// The source itself comes first. Only one without classes has samples at its top.
	self := folder{label: topLabel, now: top.now, kept: top.kept}
	if len(classes) == 0 {
		if top.problem != nil {
			w.group.Wait()
			return nil, nil, 0, top.problem
		}
		self.files, self.removed = top.files, top.removed
		w.keep(self)
		err = w.all(ctx, top.self, top.subs, func(string) int32 { return 0 })
	} else {
		w.count(-len(top.files))
		if leftOut = d.countLeftOut(top.files); top.kept != nil {
			leftOut = Unknown
		}
		self.now.Outside = 0 // files next to the class folders are not samples
		w.keep(self)
		labels := make(map[string]int32, len(classes))
		for i, c := range classes {
			labels[c] = int32(i)
		}
		err = w.all(ctx, top.self, top.subs, func(class string) int32 { return labels[class] })
	}
	return classes, w.folders, leftOut, err
}

// countLeftOut counts the files next to the class folders, except hidden ones and the file of labels.
func (d *dir) countLeftOut(samples []sample.Entry) (n int) {
	for _, e := range samples {
		if isHidden(e.Name) || e.Name == filepath.Base(d.opts.Labels) && sameFile(filepath.Join(d.path, e.Name), d.opts.Labels) {
			continue
		}
		n += max(1, len(e.Parts))
	}
	return n
}

// isHidden reports whether a file next to the class folders is hidden, like .DS_Store.
func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// topLabel sorts the source itself before its folders.
const topLabel = -1

// checkFound refuses a listing without a file, and one with a class without a file. full says which classes have one.
func (o Options) checkFound(classes []string, full []bool, total int) error {
	of := ofExts(o.Exts)
	if total == 0 {
		return fmt.Errorf("%w: it holds no file%s", ErrEmpty, of)
	}
	if o.Labels != "" || o.AllowEmpty {
		return nil
	}
	var empty []string
	for i, c := range classes {
		if !full[i] {
			empty = append(empty, clip(c))
		}
	}
	if len(empty) == 0 {
		return nil
	}
	return fmt.Errorf("class folder %s holds no file%s%s (torchvision refuses that too): remove the folder, put a file into it, allow it (--allow-empty), or list the source flat", empty[0], of, andMore(len(empty)-1))
}

func ofExts(exts []string) string {
	if len(exts) == 0 {
		return ""
	}
	return " that ends in " + strings.Join(exts, " or ")
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and so %d more", n)
}
