package source

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lcache/object"
	"lcache/s3"
	"lcache/sample"
)

// keys makes samples of the keys of a bucket, which come page by page in any order. Until all are there it keeps them in columns: a listing of
// many millions should take little more memory than its names.
type keys struct {
	opts     Options
	prefix   string
	progress func(int)
	pages    []keyPage
	found    int
	atTop    int            // of those, without a folder
	classes  map[string]int // the folders at the top: how many samples are in each
}

// keyPage is one page: names one behind the other, and where each ends.
type keyPage struct {
	names    string
	ends     []uint32
	sizes    []uint32
	versions []uint64
}

func newKeys(opts Options, prefix string, progress func(int)) *keys {
	return &keys{opts: opts, prefix: prefix, progress: progress, classes: map[string]int{}}
}

// take takes a page. A key that ends in a slash is no sample: some tools make one for each folder.
func (k *keys) take(items []s3.Item) error {
	var p keyPage
	var names strings.Builder
	for _, item := range items {
		name := strings.TrimPrefix(item.Key, k.prefix)
		if name == "" || strings.HasSuffix(name, "/") {
			continue
		}
		kept := hasExt(name, k.opts.Exts)
		class, _, inFolder := strings.Cut(name, "/")
		switch {
		case !inFolder && kept:
			k.atTop++
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
			continue
		}
		if err := checkObject(name, item.Size); err != nil {
			return err
		}
		names.WriteString(name)
		p.ends, p.sizes = append(p.ends, uint32(names.Len())), append(p.sizes, uint32(item.Size))
		p.versions = append(p.versions, objectVersion(item.Tag, item.Size))
	}
	if len(p.ends) == 0 {
		return nil
	}
	p.names = names.String()
	p.ends, p.sizes, p.versions = slices.Clip(p.ends), slices.Clip(p.sizes), slices.Clip(p.versions)
	k.pages = append(k.pages, p)
	k.found += len(p.ends)
	k.progress(k.found)
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
	case size > math.MaxUint32:
		return &SampleError{name, "list", fmt.Errorf("it has %d bytes, and a sample must have less than 4 GiB: split it", size)}
	}
	return nil
}

// join makes the listing: classes, and entries in the order of a directory's.
func (k *keys) join() (classes []string, entries []sample.Entry, err error) {
	labels := map[string]int32{}
	if !k.opts.Flat && len(k.classes) > 0 {
		for class := range k.classes {
			classes = append(classes, class)
		}
		slices.SortFunc(classes, comparePython)
		k.found -= k.atTop // files next to the class folders are no samples
	}
	full := make([]bool, len(classes))
	for i, class := range classes {
		labels[class], full[i] = int32(i), k.classes[class] > 0
	}
	if err := k.opts.checkFound(classes, full, k.found); err != nil {
		return nil, nil, err
	}
	entries = make([]sample.Entry, 0, k.found)
	for i, p := range k.pages {
		from := uint32(0)
		for j, end := range p.ends {
			e := sample.Entry{Name: p.names[from:end], Size: p.sizes[j], Version: p.versions[j]}
			from = end
			if len(classes) > 0 {
				class, _, inFolder := strings.Cut(e.Name, "/")
				if !inFolder {
					continue
				}
				e.Label = labels[class]
			}
			entries = append(entries, e)
		}
		k.pages[i] = keyPage{} // its columns are not held twice
	}
	slices.SortFunc(entries, func(a, b sample.Entry) int {
		fa, fb := folderLength(a.Name), folderLength(b.Name)
		return cmp.Or(cmp.Compare(a.Label, b.Label), comparePython(a.Name[:max(fa-1, 0)], b.Name[:max(fb-1, 0)]), cmp.Compare(min(fa, 1), min(fb, 1)),
			comparePython(a.Name[fa:], b.Name[fb:]))
	})
	if k.opts.Group == GroupStem {
		entries, err = groupFolders(entries)
	}
	return classes, entries, err
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
