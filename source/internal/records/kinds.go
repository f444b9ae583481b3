package records

import "strings"

// A Kind is a kind of record source, by the prefix of its text: KIND:PATTERN.
type Kind struct {
	Name string
	New  func(Settings) (Format, error)

	// Members means that a sample is a group of members, as in tar shards. Such a kind has no New: package source lists it as tar shards.
	Members bool

	// OwnFirst means that each sample says which of its parts is the first. Otherwise it is the first part of the table, for all samples.
	OwnFirst bool

	// Described means that another file than the shards has positions or labels. It may change while the shards stay the same, so the source
	// is listed again each time.
	Described bool

	// Check compares a part with the Tail bytes after it, before the first use of a sample. nil: parts have no checksum.
	Check func(data, after []byte) error
	Tail  int

	// Decodes means that --stream decodes the samples of a shard, from front to back. Their positions are then those in the decoded bytes: the parts
	// of all samples, one after the other.
	Decodes bool

	// Flags are the names of the flags in [FlagTable] that the kind has.
	Flags []string
}

// Kinds are all kinds of record sources.
var Kinds = []Kind{
	{Name: "ranges", New: newRanges, OwnFirst: true, Described: true},
	{Name: "parquet", New: newParquet, Decodes: true, Flags: []string{"columns", "label-column"}},
	{Name: "arrow", New: newArrow, Decodes: true, Flags: []string{"columns", "label-column"}},
	{Name: "tfrecord", New: newTFRecord, Check: checkTFRecord, Tail: tfrecordTail, Flags: []string{"feature", "label-feature"}},
	{Name: "megatron", New: newMegatron, Described: true},
	{Name: "npy", New: newNPY, Flags: []string{"record-bytes", "dtype", "shape"}},
	{Name: "bin", New: newBin, Flags: []string{"record-bytes", "dtype", "shape"}},
	{Name: "jsonl", New: newJSONL, Flags: []string{"label-field", "key"}},
	{Name: "hdf5", New: newHDF5},
	{Name: "zip", Members: true, Decodes: true},
}

// Find returns a kind of source by its name.
func Find(name string) (Kind, bool) {
	for _, k := range Kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Of returns the kind of a source, by its text, and its pattern.
func Of(src string) (k Kind, pattern string, ok bool) {
	name, pattern, found := strings.Cut(src, ":")
	if !found || strings.HasPrefix(pattern, "//") {
		return Kind{}, "", false
	}
	k, ok = Find(name)
	return k, pattern, ok
}
