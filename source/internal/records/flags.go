package records

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
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
	{"dtype", "numpy `TYPE` of a record, like uint16; with --shape", func(s *Settings, v string) (err error) {
		s.dtype = v
		s.item, err = dtypeBytes(v)
		return err
	}},
	{"feature", "`NAMES` of features of tf.train.Example to serve as parts, like image/encoded (default: the whole record)", func(s *Settings, v string) error {
		s.Features = strings.Split(v, ",")
		if slices.Contains(s.Features, "") {
			return fmt.Errorf("an empty name in %s", clip(v))
		}
		return nil
	}},
	{"key", "`FIELD` of each line with the name of its sample", func(s *Settings, v string) error {
		s.Key = v
		return nil
	}},
	{"label-column", "`NAME` of the column of labels (default: label or labels)", func(s *Settings, v string) error {
		s.LabelColumn = v
		return nil
	}},
	{"label-feature", "integer feature `NAME` of tf.train.Example with the label (default: all labels are 0)", func(s *Settings, v string) error {
		s.LabelFeature = v
		return nil
	}},
	{"label-field", "`FIELD` of each line with its label, an integer (default: all labels are 0)", func(s *Settings, v string) error {
		s.LabelField = v
		return nil
	}},
	{"record-bytes", "`N` bytes of each record, for files of one size of records", func(s *Settings, v string) (err error) {
		s.RecordBytes, err = positive(v, math.MaxUint32)
		return err
	}},
	{"shape", "`SHAPE` of a record, like 1025 or 3,32,32; with --dtype", func(s *Settings, v string) error {
		s.values = 1
		for d := range strings.SplitSeq(v, ",") {
			n, err := positive(strings.TrimSpace(d), math.MaxUint32/s.values)
			if err != nil {
				return err
			}
			s.values *= n
		}
		return nil
	}},
}

// positive parses a positive integer.
func positive(text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is not an integer from 1 to %d", clip(text), most)
	}
	return n, nil
}

// recordBytes returns the size of a record that the flags give; 0: none.
func (s Settings) recordBytes() (int64, error) {
	switch {
	case s.item == 0 && s.values == 0:
		return s.RecordBytes, nil
	case s.item == 0 || s.values == 0:
		return 0, errors.New("a record's size needs both --dtype and --shape, or --record-bytes")
	case s.values > math.MaxUint32/s.item:
		return 0, errors.New("a record of this --shape has 4 GiB or more")
	case s.RecordBytes != 0 && s.RecordBytes != s.item*s.values:
		return 0, fmt.Errorf("the record's size is %d by --record-bytes, and %d by --dtype and --shape: leave one out", s.RecordBytes, s.item*s.values)
	}
	return s.item * s.values, nil
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
