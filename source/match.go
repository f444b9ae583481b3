package source

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity tells sources apart: two SRC of one identity are the same source, whatever they are called. A directory's is its device and
// inode, as "device:inode"; that of other kinds is what the user wrote. It is valid on one machine, and while the directory exists.
func Identity(src string) (string, error) {
	if strings.Contains(src, "://") || strings.HasPrefix(src, "tar:") {
		return Canonical(src), nil
	}
	var st unix.Stat_t
	if err := unix.Stat(src, &st); err != nil {
		return "", fmt.Errorf("look at source %s: %w", clip(src), err)
	}
	return identityOf(uint64(st.Dev), st.Ino), nil
}

func identityOf(dev, ino uint64) string { return fmt.Sprintf("%d:%d", dev, ino) }

// Same reports whether two SRC are the same source. One that can't be looked at is the same as one of its own name alone.
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

// Counts says how many files of a listing have each extension: the name's end from its last dot on, in lower case. nil: not counted, or
// too many kinds.
type Counts map[string]int64

// MostExtensions is how many extensions Counts has at most.
const MostExtensions = 64

// Extension is a file name's key in Counts; "" if it has no dot.
func Extension(name string) string {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || strings.IndexByte(name[dot:], '/') >= 0 {
		return ""
	}
	return lowerASCII(name[dot:])
}

// Difference says how the list that o makes of a source differs from the one that made with the same source gives, whose files were counted.
// It is empty if both are the same: a filter that removes nothing is no difference. Jobs is none either.
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
	if !sameFile(made.Labels, o.Labels) {
		differ = append(differ, fmt.Sprintf("labels %s, not %s", labelsText(made.Labels), labelsText(o.Labels)))
	}
	return strings.Join(differ, "; ")
}

// removesNothing reports whether a filter leaves all the files that another filter left, and those alone: files that the other one removed
// are not known, so it must not let in more.
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
