package source

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lcache/sample"
)

// A Listing is the result of listing a source.
type Listing struct {
	Classes []string
	Entries []sample.Entry // of a directory; see Samples
	Folders []Folder       // of a directory; nil for other sources
	Outside int            // samples that are reached through a link that leaves the source
	LeftOut int            // files that belong to no sample: next to the class folders, or in shards without an extension; Unknown: not counted
	Removed int            // files that only Options.Exts excludes, in folders that were listed
	Same    bool           // nothing is known to differ from the listing before, so Classes and Entries are left out

	listed sample.Listing // of another source
}

// Unknown is the LeftOut of a listing that did not look into the source's own folder, since it has not changed.
const Unknown = -1

// Samples are all samples in canonical order.
func (l *Listing) Samples() sample.Listing {
	if l.listed != nil {
		return l.listed
	}
	return sample.Entries(l.Entries)
}

// Inodes has the inode of each sample; NoInode where no file was looked at. nil: none was.
func (l *Listing) Inodes() (list []uint64) {
	for i, e := range l.Entries {
		if e.Inode == sample.NoInode {
			continue
		}
		if list == nil {
			list = make([]uint64, len(l.Entries))
		}
		list[i] = e.Inode
	}
	return list
}

// A Folder is one directory of a listing, in the order of its files among all samples. Its times and its inode change when a name in it
// comes, goes or is given to another file. They don't when a file in it is written to.
type Folder struct {
	Path              string // relative to the source, "" for the source itself
	Device, Inode     uint64 // device 0: the source's own
	Modified, Changed int64  // mtime and ctime in ns since 1970; 0: it was changed just when it was listed, so they prove nothing
	Reach             Reach
	Links             int // names in it that are links
	Samples           int
	Outside           int // of the samples
}

// Before is an earlier listing with the same options but for the labels.
type Before struct {
	Folders  []Folder
	Entries  func() ([]sample.Entry, error) // all of them, asked for only if a part is needed
	Labelled bool                           // its labels were a file's
}

// Relist lists a source that was listed before, and looks only into folders that changed since, and into those that have links: what a
// link leads to can change while its folder does not. nil lists all. In the others no file is looked at, so one that was written to in
// its place goes unnoticed until it is read. Sources that can't tell are
// listed whole. progress is as List's.
func Relist(ctx context.Context, s Source, before *Before, progress func(samples int)) (*Listing, error) {
	if d, ok := s.(*dir); ok {
		return d.relist(ctx, before, progress)
	}
	if t, ok := s.(*shards); ok {
		return t.list(ctx, progress)
	}
	if r, ok := s.(*remote); ok {
		return r.listing(ctx, progress)
	}
	classes, entries, err := s.List(ctx, progress)
	return &Listing{Classes: classes, Entries: entries}, err
}

// settled is how old a folder's last change must be: a later one may bear the same time, by the file system's clock.
var settled = 2 * time.Second

// earlier is the listing before, by folder.
type earlier struct {
	folders map[string]known
	entries func() ([]sample.Entry, error)
}

type known struct {
	Folder
	from int // its samples are entries[from : from+Samples]
	subs []string
}

func newEarlier(b *Before) *earlier {
	if b == nil {
		return nil
	}
	e := &earlier{folders: make(map[string]known, len(b.Folders)), entries: b.Entries}
	from := 0
	subs := map[string][]string{}
	for _, f := range b.Folders {
		e.folders[f.Path] = known{Folder: f, from: from}
		from += f.Samples
		if f.Path != "" {
			above := f.Path[:max(0, strings.LastIndexByte(f.Path, '/'))]
			subs[above] = append(subs[above], f.Path)
		}
	}
	for path, list := range subs {
		f := e.folders[path]
		f.subs = list
		e.folders[path] = f
	}
	return e
}

// find returns the earlier listing of a folder that need not be read.
func (e *earlier) find(now Folder) (known, bool) {
	k, same := e.match(now)
	return k, same && k.Links == 0
}

// match returns the earlier listing of a folder that is itself unchanged.
func (e *earlier) match(now Folder) (known, bool) {
	if e == nil || now.Modified == 0 {
		return known{}, false
	}
	k, ok := e.folders[now.Path]
	return k, ok && k.Device == now.Device && k.Inode == now.Inode && k.Modified == now.Modified && k.Changed == now.Changed && k.Reach == now.Reach
}

// folderNow is the state of a folder that shows whether it has changed. start is when the listing began.
func folderNow(path string, st *unix.Stat_t, start time.Time) Folder {
	f := Folder{Path: path, Inode: st.Ino, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
	if latest := max(f.Modified, f.Changed); latest > start.Add(-settled).UnixNano() {
		f.Modified, f.Changed = 0, 0
	}
	return f
}

// complete gives the unchanged folders their samples of the listing before.
func (e *earlier) complete(folders []folder) error {
	var all []sample.Entry
	for i := range folders {
		f := &folders[i]
		if f.kept == nil || f.kept.Samples == 0 {
			continue
		}
		if all == nil {
			var err error
			if all, err = e.entries(); err != nil {
				return err
			}
		}
		f.files = slices.Clone(all[f.kept.from : f.kept.from+f.kept.Samples])
	}
	return nil
}

// same reports whether every folder is one that was there before, with the samples that it had, and none of those is missing.
func (e *earlier) same(folders []folder) (bool, error) {
	if len(folders) != len(e.folders) {
		return false, nil
	}
	var looked []folder // into, and samples found
	for _, f := range folders {
		if f.kept != nil {
			continue
		}
		k, same := e.match(f.now)
		if !same || len(f.files) != k.Samples || f.now.Outside != k.Outside || f.now.Links != k.Links {
			return false, nil
		}
		if f.kept = &k; k.Samples > 0 {
			looked = append(looked, f)
		}
	}
	if looked == nil {
		return true, nil
	}
	all, err := e.entries()
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(looked, func(f folder) bool { return !sameFiles(f.files, all[f.kept.from:f.kept.from+f.kept.Samples]) }), nil
}

func countOutside(folders []Folder) (n int) {
	for _, f := range folders {
		n += f.Outside
	}
	return n
}
