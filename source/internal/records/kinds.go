package records

import "strings"

// A Kind is a kind of record source, by the prefix of its text: KIND:PATTERN.
type Kind struct {
	Name string
	New  func(Settings) (Format, error)

	// Described means that another file than the shards has positions or labels. It may change while the shards stay the same, so the source
	// is listed again each time.
	Described bool

	// Flags are the names of the flags in [FlagTable] that the kind has.
	Flags []string
}

// Kinds are all kinds of record sources.
var Kinds = []Kind{
	{Name: "ranges", New: newRanges, Described: true},
	{Name: "arrow", New: newArrow, Flags: []string{"columns", "label-column"}},
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
