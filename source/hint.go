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
const noRecords = "give a folder that has a file for each sample, tar shards (tar:), or the kind of records in it, such as jsonl:, bin: or ranges:, and its path"

// ofRecords are extensions of files that hold many samples, whatever their size.
var ofRecords = []string{".parquet", ".arrow", ".tfrecord", ".tfrecords", ".tfrec", ".jsonl", ".ndjson", ".beton"}

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
		return fmt.Sprintf("%s: give %s as the source to read the records in them", what, give), nil
	}
	if end == ".h5" || end == ".hdf5" {
		return what + ": examples/index_hdf5.py writes an index of the rows in them, for ranges:", nil
	}
	return what + ": lcache does not find the records in them; if they have many, name them in an index (ranges:), or write each as a file", nil
}

// files summarizes the files of a source.
type files struct {
	n, total     int64
	first        string
	bytes, count map[string]int64 // by extension
	levels       map[string]int   // by extension: the number of folders above the files; -1: it differs
	state        bool             // there is a file state.json or dataset_info.json, as in a folder of datasets
	splits       bool             // there is a file dataset_dict.json, as in a folder of datasets with several splits
	split        string           // the folder of the first .arrow file
	index        bool             // there is a file index.json
	chunks       bool             // there are chunks of litData
	lastBin      string           // the last file NAME.bin, as NAME
	pair         string           // a file NAME.bin with a file NAME.idx in the same folder
	suffixed     bool             // names go on after .tfrecord, as x.tfrecord-00000-of-00010
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
	f.suffixed = f.suffixed || end != Extension(base)
	switch {
	case name == "state.json" || name == "dataset_info.json":
		f.state = true
	case name == "dataset_dict.json":
		f.splits = true
	case end == ".arrow" && f.split == "":
		f.split = path.Dir(name)
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

// megatronIndex is the extension of the index of a .bin file.
const megatronIndex = ".idx"

// kindOf are the kinds of sources that read the records in files with an extension, and the flags that they need.
var kindOf = map[string]struct{ scheme, flags string }{
	".arrow": {"arrow:", ""}, ".parquet": {"parquet:", ""}, ".tfrecord": {"tfrecord:", ""}, ".tfrecords": {"tfrecord:", ""}, ".tfrec": {"tfrecord:", ""},
	".jsonl": {"jsonl:", ""}, ".ndjson": {"jsonl:", ""},
	".npy": {"npy:", ""}, ".zip": {"zip:", ""}, ".bin": {"bin:", " with --record-bytes"},
}

// instead returns the source that reads the records in files with an extension; "": there is none.
func (f *files) instead(src, end string) string {
	src = strings.TrimSuffix(src, "/")
	if end == megatronIndex {
		if IsRemote(src) {
			return "megatron: and the names of the .bin files"
		}
		return clip("megatron:" + src + "/" + strings.TrimSuffix(f.pair, ".bin"))
	}
	kind, known := kindOf[end]
	if f.suffixed {
		end += "*"
	}
	switch {
	case !known:
		return ""
	case IsRemote(src):
		return kind.scheme + " and the names of the files in braces" + kind.flags
	case end == ".arrow" && f.splits:
		return "one of its splits, such as " + clip(kind.scheme+path.Join(src, f.split)) + ","
	case end == ".arrow" && f.state:
		return clip(kind.scheme + src)
	case f.levels[strings.TrimSuffix(end, "*")] < 0:
		return kind.scheme + " and a pattern of the files" + kind.flags
	}
	return clip(kind.scheme+src+"/"+strings.Repeat("*/", f.levels[strings.TrimSuffix(end, "*")])+"*"+end) + kind.flags
}

// hold describes files that seem to hold many samples each, and returns the extension in kindOf that they have; "": they
// do not seem to.
func (f *files) hold() (what, end string) {
	if f.index && f.count[".mds"] > 0 {
		return "each sample is a whole shard of MDS (.mds files and their index.json)", ""
	}
	if f.index && f.chunks {
		return "each sample is a whole chunk of litData (chunk-….bin files and their index.json)", ""
	}
	if f.pair != "" {
		return fmt.Sprintf("each sample is a whole file, such as %s, which has an .idx file with it", clip(f.pair)), megatronIndex
	}
	for _, end := range ofRecords {
		if f.bytes[end]*2 > f.total {
			return fmt.Sprintf("each sample is a whole %s file", end), end
		}
	}
	if f.n == 1 && f.total > largeOnly {
		return fmt.Sprintf("the only sample is all of %s, of %s", clip(f.first), humanize.Bytes(uint64(f.total))), ending(path.Base(f.first))
	}
	for _, end := range ofArrays {
		if n := f.count[end]; n > 0 && f.bytes[end]*2 > f.total && f.bytes[end]/n > largeMean {
			return fmt.Sprintf("each sample is a whole %s file, of %s on average", end, humanize.Bytes(uint64(f.bytes[end]/n))), end
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
				in := files{levels: map[string]int{end: strings.Count(path.Join(f.path, name), "/")}, suffixed: end != Extension(name)}
				if give := in.instead(d.path, end); give != "" {
					return fmt.Sprintf("did you mean %s?", give)
				}
				return fmt.Sprintf("it has %s files, and lcache does not find the records in them: name these in an index (ranges:)", end)
			}
		}
	}
	return ""
}

// meantShards returns advice if src names shards or files of records but does not begin with their kind; otherwise "".
func meantShards(src string) string {
	src = strings.TrimSuffix(src, "/")
	if Scheme(src) != "" {
		return ""
	}
	if tarshard.NameEnd(src) == "" {
		if kind, known := kindOf[ending(path.Base(src))]; known {
			return fmt.Sprintf("did you mean %s%s?", clip(kind.scheme+src), kind.flags)
		}
		return ""
	}
	if IsRemote(src) && strings.ContainsAny(src, "*?[") {
		return fmt.Sprintf("did you mean %s…? Only braces name shards over a network, as in train-{000..146}.tar", TarScheme)
	}
	return fmt.Sprintf("did you mean %s?", clip(TarScheme+src))
}
