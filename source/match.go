package source

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"lcache/source/internal/records"
)

// Identity returns a text that is equal for two SRC of the same source, however they are written. For a directory it
// is "device:inode", for KIND:@FILE that of ListIdentity; for other kinds it is the user's text. It is valid on one
// machine, and while the directory exists.
func Identity(src string) (string, error) {
	if strings.Contains(src, "://") || Scheme(src) != "" {
		return Canonical(ListIdentity(src)), nil
	}
	var st unix.Stat_t
	if err := unix.Stat(src, &st); err != nil {
		return "", fmt.Errorf("look at source %s: %w", clip(src), err)
	}
	return identityOf(uint64(st.Dev), st.Ino), nil
}

func identityOf(dev, ino uint64) string { return fmt.Sprintf("%d:%d", dev, ino) }

// Same reports whether two SRC are the same source. If one can't be examined, only equal texts are the same.
func Same(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	first, err := Identity(a)
	if err != nil {
		return false
	}
	second, err := Identity(b)
	return err == nil && first == second
}

// SameAs is Same for a source that was opened before. identity is what its Identity was if it is a list of files, because the list may be gone or
// have another content.
func SameAs(src, before, identity string) bool {
	return Same(before, src) || identity != "" && identity == ListIdentity(src)
}

// Counts has the number of files of a listing by extension: the end of the name from its last dot, in lower case.
// nil: not counted, or too many extensions.
type Counts map[string]int64

// MostExtensions is the maximum number of extensions in Counts.
const MostExtensions = 64

// Extension returns the key of a file name in Counts; "" if it has no dot.
func Extension(name string) string {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || strings.IndexByte(name[dot:], '/') >= 0 {
		return ""
	}
	return lowerASCII(name[dot:])
}

// Difference describes how the listing of a source with options o differs from an earlier listing with options made,
// whose files were counted. It returns "" if both are the same. A filter that removes no file makes no difference,
// and neither does Jobs.
func (o Options) Difference(made Options, counts Counts) string {
	var differ []string
	if !removesNothing(o.Exts, made.Exts, counts) {
		differ = append(differ, fmt.Sprintf("ext %s, not %s", extText(made.Exts), extText(o.Exts)))
	}
	if made.Flat != o.Flat {
		differ = append(differ, fmt.Sprintf("flat %t, not %t", made.Flat, o.Flat))
	}
	if made.Group != o.Group {
		differ = append(differ, fmt.Sprintf("group %s, not %s", groupText(made.Group), groupText(o.Group)))
	}
	if mine, theirs := strings.TrimPrefix(lowerASCII(o.Part), "."), strings.TrimPrefix(lowerASCII(made.Part), "."); mine != theirs {
		differ = append(differ, fmt.Sprintf("part %s, not %s", partText(theirs), partText(mine)))
	}
	for _, f := range records.FlagTable {
		if mine, theirs := o.Records[f.Name], made.Records[f.Name]; mine != theirs {
			differ = append(differ, fmt.Sprintf("%s %s, not %s", f.Name, partText(theirs), partText(mine)))
		}
	}
	if !sameFile(made.Labels, o.Labels) {
		differ = append(differ, fmt.Sprintf("labels %s, not %s", labelsText(made.Labels), labelsText(o.Labels)))
	}
	return strings.Join(differ, "; ")
}

// removesNothing reports whether the filter exts selects exactly the files that the filter made selected. It must not
// select more: files that made excluded are not in counts.
func removesNothing(exts, made []string, counts Counts) bool {
	mine, err1 := cleanExts(exts)
	theirs, err2 := cleanExts(made)
	if err1 != nil || err2 != nil {
		return slices.Equal(exts, made)
	}
	if sameSet(mine, theirs) {
		return true
	}
	if len(mine) == 0 || len(theirs) > 0 && !subset(mine, theirs) || counts == nil {
		return false
	}
	for ext := range counts {
		if !slices.Contains(mine, ext) {
			return false
		}
	}
	return true
}

func sameSet(a, b []string) bool {
	return (len(a) == 0) == (len(b) == 0) && subset(a, b) && subset(b, a)
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

func sameFile(a, b string) bool {
	if a == b || a == "" || b == "" {
		return a == b
	}
	first, err1 := os.Stat(a)
	second, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}

func extText(exts []string) string {
	if len(exts) == 0 {
		return "of any kind"
	}
	return strings.Join(exts, ",")
}

func groupText(group string) string {
	if group == "" {
		return "none"
	}
	return group
}

func partText(part string) string {
	if part == "" {
		return "not chosen"
	}
	return part
}

func labelsText(labels string) string {
	if labels == "" {
		return "of the folders"
	}
	return labels
}
