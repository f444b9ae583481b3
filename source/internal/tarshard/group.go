package tarshard

import (
	"fmt"
	"slices"
	"strings"
)

// A Sample is a group of adjacent members with the same folder, and the same name up to the first dot.
type Sample struct {
	Key   string // the folder, and the name up to its first dot
	Parts []Part // in the shard's order
}

// A Part is one member of a sample.
type Part struct {
	Ext string // the name after the first dot, in lower case
	Member
}

// Split splits a member's name into its sample's key and its extension, as webdataset does. ok is false if the member
// belongs to no sample: its name has no dot, or it is named like __meta__, or is in a folder named so.
func Split(name string) (key, ext string, ok bool) {
	if isMeta(name) {
		return "", "", false
	}
	name = strings.TrimPrefix(name, "./")
	folder := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[folder:], '.')
	if dot < 0 || dot == 0 && !hasWord(name[:folder]) {
		return "", "", false
	}
	return name[:folder+dot], lowerASCII(name[folder+dot+1:]), true
}

// isMeta reports whether a member describes the shard itself: it is named like __meta__, or is in a folder named so.
func isMeta(name string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "./"), "/")
	return len(first) >= 4 && strings.HasPrefix(first, "__") && strings.HasSuffix(first, "__")
}

// hasWord reports whether the last folder of a path that ends in a slash has no dot. Then webdataset uses the path
// itself as the key of a member whose name begins with a dot.
func hasWord(path string) bool {
	if path == "" {
		return false
	}
	path = path[:len(path)-1]
	return !strings.Contains(path[strings.LastIndexByte(path, '/')+1:], ".")
}

// Folder returns the folder of a key; "" if it has none.
func Folder(key string) string { return key[:max(0, strings.LastIndexByte(key, '/'))] }

// fewParts is the number of parts up to which they are compared one by one. More parts use a map, so that the time
// per part does not grow.
const fewParts = 16

// Group makes samples of a shard's members, in the order of their first members. keep selects members by name.
// Members that belong to no sample are left out. If several members have one name, the last one counts, as when the
// shard is extracted; it takes the place of the first. again has the names of these.
func Group(shard string, members []Member, keep func(name string) bool) (samples []Sample, again []string, err error) {
	seen := make(map[string]int)           // the sample of each key
	wide := make(map[int]map[string]int)   // samples with more than fewParts: the position of the part with an extension
	parts := make([]Part, 0, len(members)) // of all samples, concatenated
	find := func(at int, ext string) int {
		if set := wide[at]; set != nil {
			if k, has := set[ext]; has {
				return k
			}
			return -1
		}
		return slices.IndexFunc(samples[at].Parts, func(p Part) bool { return p.Ext == ext })
	}
	for _, m := range members {
		key, ext, ok := Split(m.Name)
		if !ok || !keep(m.Name) {
			continue
		}
		if err := refuse(shard, m); err != nil {
			return nil, nil, err
		}
		at, known := seen[key]
		if !known {
			at = len(samples)
			seen[key] = at
			samples = append(samples, Sample{Key: key})
		}
		s := &samples[at]
		k := find(at, ext)
		switch {
		case k >= 0 && s.Parts[k].Name == m.Name:
			s.Parts[k].Member = m
			again = append(again, m.Name)
			continue
		case at != len(samples)-1:
			return nil, nil, fmt.Errorf("shard %s: the members of sample %s are not adjacent: write the shard with its names sorted", clip(shard), clip(key))
		case k >= 0:
			return nil, nil, fmt.Errorf("shard %s: sample %s has the part %s twice, as %s and as %s: rename one of them", clip(shard), clip(key), clip(ext), clip(s.Parts[k].Name), clip(m.Name))
		}
		parts = append(parts, Part{Ext: ext, Member: m})
		s.Parts = parts[len(parts)-len(s.Parts)-1:]
		if n := len(s.Parts); n > fewParts {
			if wide[at] == nil {
				wide[at] = make(map[string]int)
				for k, p := range s.Parts {
					wide[at][p.Ext] = k
				}
			}
			wide[at][ext] = n - 1
		}
	}
	return samples, again, nil
}

// refuse returns an error for a member whose bytes are not in the shard as they are.
func refuse(shard string, m Member) error {
	var what string
	switch m.Kind {
	case SymbolicLink:
		what = "a symbolic link: write the shard with the file itself (tar -h)"
	case HardLink:
		what = "a hard link: write the shard with a file of its own in its place"
	case Sparse:
		what = "sparse: write the shard without tar -S"
	default:
		return nil
	}
	return fmt.Errorf("shard %s: its member %s is %s", clip(shard), clip(m.Name), what)
}

// lowerASCII lowers ASCII letters, and leaves all other bytes unchanged.
func lowerASCII(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
