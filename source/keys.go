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

// keys makes samples of the keys of a bucket, which come page by page in any order. Until all are there it keeps them in columns: a listing of
// many millions should take little more memory than its names.
type keys struct {
	opts     Options
	prefix   string
	progress func(int)
	rows     columns
	atTop    int      // of those, without a folder
	hidden   int      // of those at the top, whose name begins with a dot
	removed  struct { // keys that Options.Exts leaves out
		inFolders, atTop int
	}
	classes map[string]int // the folders at the top: how many samples are in each
}

func newKeys(opts Options, prefix string, progress func(int)) *keys {
	return &keys{opts: opts, prefix: prefix, progress: progress, classes: map[string]int{}}
}

// take takes a page. A key that ends in a slash is no sample: some tools make one for each folder.
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

// objectVersion is an object's version in a manifest. An empty object has none, since it is never asked for.
func objectVersion(tag string, size int64) uint64 {
	if size == 0 {
		return 0
	}
	return object.Version(tag)
}

// checkObject refuses what can't be a sample.
func checkObject(name string, size int64) error {
	switch {
	case len(name) > sample.MaxName:
		return &SampleError{name, "list", fmt.Errorf("its name has %d bytes, at most %d: shorten it", len(name), sample.MaxName)}
	case size < 0:
		return &SampleError{name, "list", fmt.Errorf("its size is %d bytes: let the server tell one of 0 or more", size)}
	case size > math.MaxUint32:
		return &SampleError{name, "list", fmt.Errorf("it has %d bytes, and a sample must have less than 4 GiB: split it", size)}
	}
	return nil
}

// join makes the listing: classes, and samples in the order of a directory's.
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

// compare is the order of rows: by class, then by folder, then by name.
func (c *columns) compare(a, b uint32) int {
	inA, atA, nameA := c.row(a)
	inB, atB, nameB := c.row(b)
	fa, fb := folderLength(nameA), folderLength(nameB)
	return cmp.Or(cmp.Compare(inA.labels[atA], inB.labels[atB]), comparePython(nameA[:max(fa-1, 0)], nameB[:max(fb-1, 0)]), cmp.Compare(min(fa, 1), min(fb, 1)),
		comparePython(nameA[fa:], nameB[fb:]))
}

// folderLength is how long a name's folder is, with its slash.
func folderLength(name string) int { return strings.LastIndexByte(name, '/') + 1 }

// groupFolders groups the files of each folder; they lie side by side.
func groupFolders(files []sample.Entry) (samples []sample.Entry, err error) {
	samples = files[:0] // there are never more samples than files
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
