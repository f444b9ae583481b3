package records

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"lcache/internal/jsonbytes"
)

// features are what the datasets package of Hugging Face writes about columns into the metadata of Arrow and Parquet files.
type features map[string]feature

type feature struct {
	Type  string   `json:"_type"`
	Names []string `json:"names"`
}

// featuresKey is the key of that metadata.
const featuresKey = "huggingface"

// parseFeatures parses the metadata. What is not understood counts as missing: columns can be served without it.
func parseFeatures(text string) features {
	var meta struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if jsonbytes.Unmarshal([]byte(text), &meta) != nil {
		return nil
	}
	all := features{}
	for name, raw := range meta.Info.Features {
		var f feature
		if jsonbytes.Unmarshal(raw, &f) == nil { // a list of features is no object
			all[name] = f
		}
	}
	return all
}

// isMedia reports whether a column has images, audio or video.
func (f features) isMedia(column string) bool {
	return slices.Contains([]string{"Image", "Audio", "Video", "Pdf"}, f[column].Type)
}

// A leaf is a column that may be a part or the label, before it is chosen.
type leaf struct {
	name   string // of the part: image, image.path
	column string // at the top: image
	kind   string // its type, which all shards must have
	binary bool
	whyNot string // why it can't be a part; "": it can
	at     int    // its number among all leaves
}

// chooseLeaves returns the leaves that are the parts of a sample, the first part first.
func chooseLeaves(all []leaf, s Settings, f features) (chosen []leaf, err error) {
	for _, name := range s.Columns {
		if !slices.ContainsFunc(all, func(l leaf) bool { return l.matches(name) }) {
			return nil, fmt.Errorf("it has no column %s: it has %s", clip(name), namesOf(all))
		}
	}
	why, whyBinary := "", false // of the first column of bytes, else of the first one
	for _, l := range all {
		named := slices.ContainsFunc(s.Columns, l.matches)
		exactly := slices.Contains(s.Columns, l.name)
		switch {
		case l.whyNot != "" && exactly:
			return nil, fmt.Errorf("its column %s can't be served: %s", clip(l.name), l.whyNot)
		case l.whyNot != "":
			if why == "" || l.binary && !whyBinary {
				whyBinary = l.binary
				why = fmt.Sprintf(" (its column %s can't: %s)", clip(l.name), l.whyNot)
			}
		case named || len(s.Columns) == 0:
			chosen = append(chosen, l)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no column of it can be served as it is%s", why)
	}
	if len(chosen) > MostParts && len(s.Columns) > 0 {
		chosen = slices.DeleteFunc(chosen, func(l leaf) bool { return !l.isNamed(s.Columns, all) })
	}
	if len(chosen) > MostParts {
		return nil, fmt.Errorf("%d of its columns can be parts, at most %d: choose some: --columns %s,…", len(chosen), MostParts, plain(chosen[0].name))
	}
	first := slices.IndexFunc(chosen, func(l leaf) bool { return f.isMedia(l.column) && l.name == l.column })
	if first < 0 {
		first = slices.IndexFunc(chosen, func(l leaf) bool { return l.binary })
	}
	if first > 0 {
		one := chosen[first]
		chosen = slices.Insert(slices.Delete(chosen, first, first+1), 0, one)
	}
	return chosen, nil
}

// matches reports whether a name of --columns means a leaf: itself, or all of its column.
func (l leaf) matches(name string) bool {
	return l.name == name || l.column == name || strings.HasPrefix(l.name, name+".")
}

// isNamed reports whether a leaf is chosen if a name that is that of a leaf means no other one: the part image, and not all of the column image.
func (l leaf) isNamed(names []string, all []leaf) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if slices.ContainsFunc(all, func(other leaf) bool { return other.name == name }) {
			return l.name == name
		}
		return l.matches(name)
	})
}

func namesOf(all []leaf) string {
	var names []string
	for _, l := range all[:min(len(all), 30)] {
		names = append(names, plain(l.name))
	}
	if len(all) > 30 {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// chooseLabel returns the column of labels; "": none. integers are the columns of integers.
func chooseLabel(s Settings, f features, integers []string) (string, error) {
	if s.NoLabels {
		return "", nil
	}
	if s.LabelColumn != "" {
		if !slices.Contains(integers, s.LabelColumn) {
			return "", fmt.Errorf("it has no column %s of integers for labels: choose --label-column of %s", clip(s.LabelColumn), orNone(integers))
		}
		return s.LabelColumn, nil
	}
	for _, name := range []string{"label", "labels"} {
		if slices.Contains(integers, name) {
			return name, nil
		}
	}
	found := ""
	for _, name := range integers {
		if f[name].Type == "ClassLabel" {
			if found != "" {
				return "", nil // several: none is the one
			}
			found = name
		}
	}
	return found, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	var all []string
	for _, name := range names[:min(len(names), 30)] {
		all = append(all, plain(name))
	}
	return strings.Join(all, ", ")
}
