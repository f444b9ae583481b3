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

// List returns the samples in the order of torchvision's ImageFolder. The folders at the top are the classes, sorted
// as Python sorts them. Within a class, the folders are sorted by their whole path (so "a", "a-b", "a/b": not the
// order of a depth-first walk), and within a folder, the files are sorted. Links to folders and files are followed.
// Files next to the class folders are left out. As in torchvision, a class folder without a file is an error. Unlike
// in torchvision, so is anything that would be left out silently or fail later: an unreadable file, a link without a
// target, a loop of links, a file that is not regular. A file of labels changes classes and labels, but not the
// order; then a top folder without a file is allowed.
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
	// The order is by class, then by the folder's path. The files of each folder are already sorted.
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

// join concatenates the files of the folders.
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
		folders[i].files = nil // frees the copy, because a listing may have many millions of samples
	}
	return entries, listed, nil
}

// list finds all folders, in any order. leftOut is as in Listing.
func (d *dir) list(ctx context.Context, before *earlier, progress func(int)) (classes []string, folders []folder, leftOut int, err error) {
	w, ctx := newWalk(ctx, d, before, progress)
	top, err := w.scan(ctx, sub{path: "."}, nil)
	if err != nil {
		w.group.Wait() // no goroutine is running; Wait frees the context
		return nil, nil, 0, err
	}
	if !d.opts.Flat {
		for _, s := range top.subs {
			classes = append(classes, s.path)
		}
		slices.SortFunc(classes, comparePython)
	}
	// The source itself comes first. It has samples of its own only if no classes were found.
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

// checkFound returns an error for a listing without samples, or with a class without samples. full says which classes
// have samples.
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
