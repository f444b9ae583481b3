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
	Outside int            // samples behind a link that leaves the source
	LeftOut int            // files that belong to no sample: next to the class folders, or without an extension in shards; Unknown: not counted
	Removed int            // files that only Options.Exts excludes, in folders that were listed
	Same    bool           // no difference to the listing before is known, so Classes and Entries are empty

	listed sample.Listing // of sources that are not directories
}

// Unknown is the LeftOut of a listing that did not read the source's own folder, because it has not changed.
const Unknown = -1

// Samples returns all samples in canonical order.
func (l *Listing) Samples() sample.Listing {
	if l.listed != nil {
		return l.listed
	}
	return sample.Entries(l.Entries)
}

// Inodes returns the inode of each sample; NoInode for a file that was not examined. It returns nil if no file was.
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

// A Folder is one directory of a listing, with its position in the order of all samples. Its times change when a name
// in it is added, removed or given to another file. They do not change when a file in it is written to.
type Folder struct {
	Path              string // relative to the source, "" for the source itself
	Device, Inode     uint64 // device 0: the source's own
	Modified, Changed int64  // mtime and ctime in ns since 1970; 0: changed shortly before the listing, so the times prove nothing
	Reach             Reach
	Links             int // number of names that are links
	Samples           int
	Outside           int // number of samples behind links that leave the source
}

// Before is an earlier listing with the same options, except labels.
type Before struct {
	Folders  []Folder
	Entries  func() ([]sample.Entry, error) // returns all of them; called only if some are needed
	Labelled bool                           // its labels came from a file
}

// Relist lists a source again. It reads only folders that have changed since the listing before, and folders with
// links, because the target of a link can change while its folder does not. With nil, it lists everything. In
// unchanged folders no file is examined, so a file that was written to in place is noticed only when it is read.
// Sources without times are listed completely. progress is as in List.
func Relist(ctx context.Context, s Source, before *Before, progress func(samples int)) (*Listing, error) {
	if d, ok := s.(*dir); ok {
		return d.relist(ctx, before, progress)
	}
	if t, ok := s.(*shards); ok {
		return t.list(ctx, progress)
	}
	if r, ok := s.(*recordSource); ok {
		return r.list(ctx, progress)
	}
	if r, ok := s.(*remote); ok {
		return r.listing(ctx, progress)
	}
	classes, entries, err := s.List(ctx, progress)
	return &Listing{Classes: classes, Entries: entries}, err
}

// settled is the minimum age of a folder's last change. A later change may get the same time from the file system's
// clock.
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

// match returns the earlier listing of a folder that itself has not changed.
func (e *earlier) match(now Folder) (known, bool) {
	if e == nil || now.Modified == 0 {
		return known{}, false
	}
	k, ok := e.folders[now.Path]
	return k, ok && k.Device == now.Device && k.Inode == now.Inode && k.Modified == now.Modified && k.Changed == now.Changed && k.Reach == now.Reach
}

// folderNow returns the state of a folder that shows whether it changes later. start is the beginning of the listing.
func folderNow(path string, st *unix.Stat_t, start time.Time) Folder {
	f := Folder{Path: path, Inode: st.Ino, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
	if latest := max(f.Modified, f.Changed); latest > start.Add(-settled).UnixNano() {
		f.Modified, f.Changed = 0, 0
	}
	return f
}

// complete fills in the samples of unchanged folders from the listing before.
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

// same reports whether the folders and their samples are the same as in the listing before.
func (e *earlier) same(folders []folder) (bool, error) {
	if len(folders) != len(e.folders) {
		return false, nil
	}
	var looked []folder // folders that were read, and their samples
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
