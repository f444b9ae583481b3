package source

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lcache/sample"
	"lcache/source/internal/object"
	"lcache/source/internal/s3"
)

// keys makes samples from the keys of a bucket, which arrive in pages and in any order. It stores them in columns
// until all are there: a listing of many millions should take little more memory than its names.
type keys struct {
	opts     Options
	prefix   string
	progress func(int)
	rows     columns
	atTop    int      // of rows: keys without a folder
	hidden   int      // of atTop: names that begin with a dot
	removed  struct { // keys that Options.Exts excludes
		inFolders, atTop int
	}
	classes map[string]int // the folders at the top, with the number of samples in each
}

func newKeys(opts Options, prefix string, progress func(int)) *keys {
	return &keys{opts: opts, prefix: prefix, progress: progress, classes: map[string]int{}}
}

// take adds a page. It skips keys that end in a slash: some tools create one for each folder.
func (k *keys) take(items []s3.Item) error {
	for _, item := range items {
		name := strings.TrimPrefix(item.Key, k.prefix)
		if name == "" || strings.HasSuffix(name, "/") {
			continue
		}
		kept := hasExt(name, k.opts.Exts)
		class, _, inFolder := strings.Cut(name, "/")
		switch {
		case !inFolder && kept:
			if k.atTop++; isHidden(name) {
				k.hidden++
			}
		case inFolder && !kept && k.classes[class] == 0:
			k.classes[strings.Clone(class)] = 0
		case inFolder && kept:
			if n, known := k.classes[class]; known {
				k.classes[class] = n + 1
			} else {
				k.classes[strings.Clone(class)] = 1
			}
		}
		if !kept {
			if inFolder {
				k.removed.inFolders++
			} else {
				k.removed.atTop++
			}
			continue
		}
		if err := checkObject(name, item.Size); err != nil {
			return err
		}
		k.rows.add(name, uint32(item.Size), objectVersion(item.Tag, item.Size))
	}
	if k.rows.rows > 0 {
		k.progress(k.rows.rows)
	}
	return nil
}

// objectVersion returns an object's version for the manifest. An empty object has none, because it is never
// requested.
func objectVersion(tag string, size int64) uint64 {
	if size == 0 {
		return 0
	}
	return object.Version(tag)
}

// checkObject returns an error for an object that can't be a sample.
func checkObject(name string, size int64) error {
	switch {
	case len(name) > sample.MaxName:
		return &SampleError{name, "list", fmt.Errorf("its name has %d bytes, at most %d: shorten it", len(name), sample.MaxName)}
	case size < 0:
		return &SampleError{name, "list", fmt.Errorf("its size is %d bytes: the server must report 0 or more", size)}
	case size > math.MaxUint32:
		return &SampleError{name, "list", fmt.Errorf("it has %d bytes, and a sample must have less than 4 GiB: split it", size)}
	}
	return nil
}

// join returns the listing: classes, and samples in the order of a directory source.
func (k *keys) join() (*Listing, error) {
	var classes []string
	leftOut, removed := 0, k.removed.inFolders
	labels := map[string]int32{}
	found := k.rows.rows
	if !k.opts.Flat && len(k.classes) > 0 {
		for class := range k.classes {
			classes = append(classes, class)
		}
		slices.SortFunc(classes, comparePython)
		leftOut = k.atTop - k.hidden // files next to the class folders are not samples
		found -= k.atTop
	} else {
		removed += k.removed.atTop
	}
	full := make([]bool, len(classes))
	for i, class := range classes {
		labels[class], full[i] = int32(i), k.classes[class] > 0
	}
	if err := k.opts.checkFound(classes, full, found); err != nil {
		return nil, err
	}
	c := &k.rows
	c.seal()
	c.order = make([]uint32, 0, found)
	for r := range uint32(c.rows) {
		if len(classes) > 0 {
			in, at, name := c.row(r)
			class, _, inFolder := strings.Cut(name, "/")
			if !inFolder {
				continue
			}
			in.labels[at] = labels[class]
		}
		c.order = append(c.order, r)
	}
	slices.SortFunc(c.order, c.compare)
	if k.opts.Group == GroupStem {
		entries, err := groupFolders(entriesOf(c))
		return &Listing{Classes: classes, LeftOut: leftOut, Removed: removed, listed: sample.Entries(entries)}, err
	}
	return &Listing{Classes: classes, LeftOut: leftOut, Removed: removed, listed: c}, nil
}

// compare compares two rows by class, then by folder, then by name.
func (c *columns) compare(a, b uint32) int {
	inA, atA, nameA := c.row(a)
	inB, atB, nameB := c.row(b)
	fa, fb := folderLength(nameA), folderLength(nameB)
	return cmp.Or(cmp.Compare(inA.labels[atA], inB.labels[atB]), comparePython(nameA[:max(fa-1, 0)], nameB[:max(fb-1, 0)]), cmp.Compare(min(fa, 1), min(fb, 1)),
		comparePython(nameA[fa:], nameB[fb:]))
}

// folderLength returns the length of a name's folder, with its slash.
func folderLength(name string) int { return strings.LastIndexByte(name, '/') + 1 }

// groupFolders groups the files of each folder. Files of one folder must be adjacent.
func groupFolders(files []sample.Entry) (samples []sample.Entry, err error) {
	samples = files[:0] // samples reuses the memory of files, because there are never more samples
	for i := 0; i < len(files); {
		from, n := i, folderLength(files[i].Name)
		folder, label := files[i].Name[:n], files[i].Label
		for i < len(files) && folderLength(files[i].Name) == n && files[i].Name[:n] == folder {
			i++
		}
		grouped, err := group(files[from:i:i], n)
		if err != nil {
			return nil, err
		}
		for j := range grouped {
			grouped[j].Label = label
		}
		samples = append(samples, grouped...)
	}
	return samples, nil
}
