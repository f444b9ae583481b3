package tarshard

import (
	"fmt"
	"slices"
	"strings"
)

// A Sample is some members that lie side by side and share folder and name up to the first dot.
type Sample struct {
	Key   string // the folder, and the name up to its first dot
	Parts []Part // in the shard's order
}

// A Part is one member of a sample.
type Part struct {
	Ext string // what follows the first dot, in lower case
	Member
}

// Split cuts a member's name into its sample's key and its extension, as webdataset does. ok is false if the member belongs to no sample: its name has no dot, or it
// lies in a folder such as __meta__, or is called so.
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

// isMeta reports whether a member is about the shard itself: it lies in a folder such as __meta__, or is called so.
func isMeta(name string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "./"), "/")
	return len(first) >= 4 && strings.HasPrefix(first, "__") && strings.HasSuffix(first, "__")
}

// hasWord reports whether the last folder of a path that ends in a slash has no dot: then webdataset takes the path itself for the key of a member whose
// name begins with a dot.
func hasWord(path string) bool {
	if path == "" {
		return false
	}
	path = path[:len(path)-1]
	return !strings.Contains(path[strings.LastIndexByte(path, '/')+1:], ".")
}

// Folder is the folder of a key, "" if it has none.
func Folder(key string) string { return key[:max(0, strings.LastIndexByte(key, '/'))] }

// fewParts are compared one by one. More of them are found by a set, so that a sample of very many parts takes no longer for each.
const fewParts = 16

// Group makes samples of a shard's members, in the order of their first members. keep chooses members by name. Members that belong to no sample are left out. Of members with one name the last counts, as when the shard is
// extracted; it takes the place of the first. again has the names of these.
func Group(shard string, members []Member, keep func(name string) bool) (samples []Sample, again []string, err error) {
	seen := make(map[string]int)           // keys: which sample has it
	wide := make(map[int]map[string]int)   // samples of more than fewParts: where the part of an extension is
	parts := make([]Part, 0, len(members)) // of all samples, one behind the other
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
			return nil, nil, fmt.Errorf("shard %s: the members of sample %s don't lie side by side: write the shard with its names sorted", clip(shard), clip(key))
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

// refuse names a member whose bytes the shard does not have as they are.
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

// lowerASCII leaves all other bytes as they are.
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
