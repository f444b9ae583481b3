package records

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Flags are the flags of a listing of records, by their names, with their values as text. They are part of the identity of a cache: job.json,
// the name of its folder and the comparison of servers have them.
type Flags map[string]string

// A Flag is a flag of a listing of records.
type Flag struct {
	Name  string // without dashes
	Usage string
	set   func(s *Settings, value string) error
}

// FlagTable has all flags of listings of records. A new one needs a row here, in Kinds for the formats that have it, in the groups of flags of
// the command's help, and in RECORD_FLAGS of python/lcache/_client/schemes.py.
var FlagTable = []Flag{
	{"columns", "`NAMES` of the columns to serve as parts, like image,text (default: all that can be)", func(s *Settings, v string) error {
		s.Columns = strings.Split(v, ",")
		if slices.Contains(s.Columns, "") {
			return fmt.Errorf("an empty name in %s", clip(v))
		}
		return nil
	}},
	{"label-column", "`NAME` of the column of labels (default: label or labels)", func(s *Settings, v string) error {
		s.LabelColumn = v
		return nil
	}},
}

// Settings parses flags for a kind of source.
func (k Kind) Settings(flags Flags) (s Settings, err error) {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		at := slices.IndexFunc(FlagTable, func(f Flag) bool { return f.Name == name })
		switch {
		case at < 0:
			return s, fmt.Errorf("--%s is unknown to this lcache: use the lcache that made the cache", name)
		case !slices.Contains(k.Flags, name):
			return s, fmt.Errorf("--%s is not for a source %s:… : leave it out", name, k.Name)
		case flags[name] == "":
			return s, fmt.Errorf("--%s is empty: give a value, or leave it out", name)
		}
		if err := FlagTable[at].set(&s, flags[name]); err != nil {
			return s, fmt.Errorf("--%s: %w", name, err)
		}
	}
	return s, nil
}
