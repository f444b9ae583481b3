package source

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"lcache/sample"
)

// GroupStem makes one sample of the files with the same folder and stem. For example image.jpg, image.json and
// image.seg.png are the sample "image" with the parts jpg, json and seg.png. The stem is the name up to its first
// dot; a leading dot does not count. A name without a dot, or with nothing after it, is only a stem, with the part
// "". Parts are in the order of their extensions, as Python sorts them. The sample has the position of its first
// part's file in the folder.
const GroupStem = "stem"

// splitStem splits a path at the end of the stem. prefix is the length of the folder's path with its slash.
func splitStem(path string, prefix int) (stem, ext string) {
	dot := prefix + 1
	if dot > len(path) {
		return path, ""
	}
	i := strings.IndexByte(path[dot:], '.')
	if i < 0 || dot+i == len(path)-1 {
		return path, ""
	}
	return path[:dot+i], path[dot+i+1:]
}

// partName returns the file of a part: the inverse of splitStem.
func partName(stem, ext string) string {
	if ext == "" {
		return stem
	}
	return stem + "." + ext
}

// Files returns the names of a sample's files.
func Files(e sample.Entry) []string {
	if e.Parts == nil {
		return []string{e.Name}
	}
	names := make([]string, len(e.Parts))
	for i, p := range e.Parts {
		names[i] = partName(e.Name, p.Ext)
	}
	return names
}

// group makes samples of the files of one folder. It sorts files.
func group(files []sample.Entry, prefix int) ([]sample.Entry, error) {
	type file struct {
		sample.Entry
		stem, ext string
	}
	list := make([]file, len(files))
	for i, f := range files {
		list[i].Entry = f
		list[i].stem, list[i].ext = splitStem(f.Name, prefix)
	}
	slices.SortFunc(list, func(a, b file) int {
		return cmp.Or(strings.Compare(a.stem, b.stem), comparePython(a.ext, b.ext))
	})
	samples := files[:0] // samples reuses the memory of files, because there are never more samples; list has a copy of the files
	var first []string   // for each sample, the name of its first part
	for i := 0; i < len(list); {
		stem, from, size := list[i].stem, i, uint64(0)
		h := newPartsVersion()
		var inode partsInode
		parts := []sample.Part(nil)
		for ; i < len(list) && list[i].stem == stem; i++ {
			size += uint64(list[i].Size)
			parts = append(parts, sample.Part{Ext: list[i].ext, Size: list[i].Size})
			h.add(list[i].ext, list[i].Size, list[i].Version)
			inode.add(list[i].Inode)
		}
		if len(parts) > sample.MaxParts {
			return nil, &SampleError{stem, "list", fmt.Errorf("it has %d parts, at most %d: rename some of its files", len(parts), sample.MaxParts)}
		}
		if size > math.MaxUint32 {
			return nil, &SampleError{stem, "list", fmt.Errorf("its %d parts have %d bytes, and a sample must have less than 4 GiB: split it", len(parts), size)}
		}
		samples = append(samples, sample.Entry{Name: stem, Size: uint32(size), Version: h.sum(), Inode: inode.sum(), Parts: parts})
		first = append(first, list[from].Name)
	}
	order := make([]int, len(samples))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return comparePython(first[a], first[b]) })
	sorted := make([]sample.Entry, len(samples))
	for i, from := range order {
		sorted[i] = samples[from]
	}
	return sorted, nil
}

// partsVersion is the version of a sample with parts: the xxh3-64 of each part's extension, size and version.
type partsVersion struct{ b []byte }

func newPartsVersion() *partsVersion { return &partsVersion{} }

func (v *partsVersion) add(ext string, size uint32, version uint64) {
	v.b = binary.LittleEndian.AppendUint32(v.b, uint32(len(ext)))
	v.b = append(v.b, ext...)
	v.b = binary.LittleEndian.AppendUint32(v.b, size)
	v.b = binary.LittleEndian.AppendUint64(v.b, version)
}

func (v *partsVersion) sum() uint64 { return xxh3.Hash(v.b) }

// readParts reads the files of a sample one after the other, and checks each file before and after its read. Only at
// the end is it known that all files are the listed ones.
func (d *dir) readParts(ctx context.Context, e sample.Entry, dst []byte) error {
	v := newPartsVersion()
	var inodes partsInode
	for _, p := range e.Parts {
		version, inode, err := d.readFile(ctx, e.Name, partName(e.Name, p.Ext), dst[:p.Size], nil)
		if err != nil {
			return err
		}
		v.add(p.Ext, p.Size, version)
		inodes.add(inode)
		dst = dst[p.Size:]
	}
	if v.sum() != e.Version {
		return &SampleError{e.Name, "read", fmt.Errorf("%w (one of its %d files was written to)", ErrChanged, len(e.Parts))}
	}
	noteInode(ctx, inodes.sum())
	return nil
}

// checkParts checks the part sizes of an entry before they are used, because the entry may come from a file.
func checkParts(e sample.Entry) error {
	sum := uint64(0)
	for _, p := range e.Parts {
		sum += uint64(p.Size)
	}
	if sum != uint64(e.Size) {
		return errors.New("its parts are not the whole: list the source again")
	}
	return nil
}
