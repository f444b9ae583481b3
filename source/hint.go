package source

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"lcache/source/internal/tarshard"
)

const (
	mostLookedAt = 10_000      // files of a source that are examined to recognize its kind
	largeMean    = 64_000_000  // mean file size in bytes from which files are more likely arrays than samples
	largeOnly    = 100_000_000 // size in bytes from which the only file of a source is not one sample
)

// noRecords is advice for a source that is a single file.
const noRecords = "give a folder that has a file for each sample, tar shards (tar:), or what reads the records in it: arrow:, parquet: or ranges: and a path"

// ofRecords are extensions of files that hold many samples, whatever their size.
var ofRecords = []string{".parquet", ".arrow", ".tfrecord", ".tfrecords"}

// ofArrays are extensions of files that hold many samples if the files are large.
var ofArrays = []string{".bin", ".npy", ".h5", ".hdf5", ".zip"}

// Records returns why the files of a source probably hold many samples each, and what to do. It returns "" if nothing
// suggests that. file returns the name and size of file i of n, in the order of the listing.
func Records(src string, n int, file func(i int) (name string, size uint32, err error)) (string, error) {
	f := files{bytes: map[string]int64{}, count: map[string]int64{}, levels: map[string]int{}}
	for i := range min(n, mostLookedAt) {
		name, size, err := file(i)
		if err != nil {
			return "", err
		}
		f.add(name, size)
	}
	what, end := f.hold()
	if what == "" {
		return "", nil
	}
	if give := f.instead(src, end); give != "" {
		return fmt.Sprintf("%s: give %s as the source to read the rows in them", what, give), nil
	}
	return what + ": lcache does not read the records in a file; if it has many, write each as a file, or pack them into tar shards", nil
}

// files summarizes the files of a source.
type files struct {
	n, total     int64
	first        string
	bytes, count map[string]int64 // by extension
	levels       map[string]int   // by extension: the number of folders above the files; -1: it differs
	state        bool             // there is a file state.json, as in a folder of datasets
	index        bool             // there is a file index.json
	chunks       bool             // there are chunks of litData
	lastBin      string           // the last file NAME.bin, as NAME
	pair         string           // a file NAME.bin with a file NAME.idx in the same folder
}

func (f *files) add(name string, size uint32) {
	if f.n == 0 {
		f.first = name
	}
	f.n, f.total = f.n+1, f.total+int64(size)
	base := path.Base(name)
	end := ending(base)
	f.count[end]++
	f.bytes[end] += int64(size)
	if levels := strings.Count(name, "/"); f.count[end] == 1 {
		f.levels[end] = levels
	} else if f.levels[end] != levels {
		f.levels[end] = -1
	}
	switch {
	case name == "state.json":
		f.state = true
	case base == "index.json":
		f.index = true
	case end == ".bin":
		f.lastBin = strings.TrimSuffix(name, base[len(base)-len(end):])
		f.chunks = f.chunks || strings.HasPrefix(base, "chunk-")
	case end == ".idx" && f.pair == "" && f.lastBin != "" && f.lastBin == strings.TrimSuffix(name, base[len(base)-len(end):]):
		f.pair = f.lastBin + ".bin"
	}
}

// ending returns the extension of a file name, in lower case. For a shard such as x.tfrecord-00000-of-00010 it is
// .tfrecord.
func ending(base string) string {
	end := Extension(base)
	for _, known := range ofRecords {
		if strings.HasPrefix(end, known+"-") {
			return known
		}
	}
	return end
}

// instead returns the source that reads the records in files with an extension; "": there is none.
func (f *files) instead(src, end string) string {
	kind, known := map[string]string{".arrow": "arrow:", ".parquet": "parquet:"}[end]
	switch {
	case !known:
		return ""
	case IsRemote(src):
		return kind + " and the names of the files in braces"
	case end == ".arrow" && f.state:
		return clip(kind + strings.TrimSuffix(src, "/"))
	case f.levels[end] < 0:
		return kind + " and a pattern of the files"
	}
	return clip(kind + strings.TrimSuffix(src, "/") + "/" + strings.Repeat("*/", f.levels[end]) + "*" + end)
}

// hold describes files that seem to hold many samples each, and their extension if it is that of records; "": they do
// not seem to.
func (f *files) hold() (what, end string) {
	if f.index && f.count[".mds"] > 0 {
		return "each sample is a whole shard of MDS (.mds files and their index.json)", ""
	}
	if f.index && f.chunks {
		return "each sample is a whole chunk of litData (chunk-….bin files and their index.json)", ""
	}
	if f.pair != "" {
		return fmt.Sprintf("each sample is a whole file, such as %s, which has an .idx file with it", clip(f.pair)), ""
	}
	for _, end := range ofRecords {
		if f.bytes[end]*2 > f.total {
			return fmt.Sprintf("each sample is a whole %s file", end), end
		}
	}
	if f.n == 1 && f.total > largeOnly {
		return fmt.Sprintf("the only sample is all of %s, of %s", clip(f.first), humanize.Bytes(uint64(f.total))), ""
	}
	for _, end := range ofArrays {
		if n := f.count[end]; n > 0 && f.bytes[end]*2 > f.total && f.bytes[end]/n > largeMean {
			return fmt.Sprintf("each sample is a whole %s file, of %s on average", end, humanize.Bytes(uint64(f.bytes[end]/n))), ""
		}
	}
	return "", ""
}

const (
	mostFolders = 10   // number of folders to examine if no file is a sample
	mostNames   = 1000 // number of names to examine in each folder
)

// instead returns advice about a directory that has no wanted files but has shards or record files; otherwise "".
func (d *dir) instead(folders []folder) string {
	for _, f := range folders[:min(len(folders), mostFolders)] {
		at, err := d.root.Open(cmp.Or(f.path, "."))
		if err != nil {
			continue
		}
		names, _ := at.Readdirnames(mostNames)
		at.Close()
		slices.Sort(names)
		for _, name := range names {
			if end := tarshard.NameEnd(name); end != "" {
				levels := 0
				if f.path != "" {
					levels = 1 + strings.Count(f.path, "/")
				}
				return fmt.Sprintf("did you mean %s?", clip(TarScheme+d.path+"/"+strings.Repeat("*/", levels)+"*"+end))
			}
			if end := ending(name); slices.Contains(ofRecords, end) {
				in := files{levels: map[string]int{end: strings.Count(path.Join(f.path, name), "/")}}
				if give := in.instead(d.path, end); give != "" {
					return fmt.Sprintf("did you mean %s?", give)
				}
				return fmt.Sprintf("it has %s files, and lcache does not read the records in a file yet", end)
			}
		}
	}
	return ""
}

// meantShards returns advice if src names shards but does not begin with tar:; otherwise "".
func meantShards(src string) string {
	src = strings.TrimSuffix(src, "/")
	if tarshard.NameEnd(src) == "" || Scheme(src) != "" {
		return ""
	}
	if IsRemote(src) && strings.ContainsAny(src, "*?[") {
		return fmt.Sprintf("did you mean %s…? Only braces name shards over a network, as in train-{000..146}.tar", TarScheme)
	}
	return fmt.Sprintf("did you mean %s?", clip(TarScheme+src))
}
