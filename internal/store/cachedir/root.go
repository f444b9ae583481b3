package cachedir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// DefaultRoot returns the default folder of caches, and the origin of its name.
func DefaultRoot() (root, from string, err error) {
	if xdg := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(xdg) {
		return filepath.Join(xdg, "lcache"), "$XDG_CACHE_HOME", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", "", fmt.Errorf("no place for caches: %w; give --cache ROOT", err)
	}
	return filepath.Join(home, ".cache", "lcache"), "your home", nil
}

// Folder returns the name of a source's folder in a root: <last name of the source>-<8 hex>. The digits are a hash of the source's absolute path
// and of its listing, so that sources with the same last name have different folders. The Python client makes the same names: tests on both
// sides have the same examples.
func Folder(source string, l Listing) string {
	name := strings.TrimRight(source, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	var clean []rune
	for _, r := range name {
		// The characters that Python's \w matches.
		if r == unicode.ReplacementChar || r != '_' && r != '.' && r != '-' && !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			r = '_'
		}
		if clean = append(clean, r); len(clean) == 80 {
			break
		}
	}
	if len(clean) == 0 {
		clean = []rune("root")
	}
	key := source
	if len(l.Exts) > 0 {
		key += "\x00--ext=" + strings.Join(l.Exts, ",")
	}
	if l.Flat {
		key += "\x00--flat"
	}
	if l.Group != "" {
		key += "\x00--group=" + l.Group
	}
	if l.Labels != "" {
		key += "\x00--labels=" + l.Labels
	}
	if l.FirstPart != "" {
		key += "\x00--part=" + l.FirstPart
	}
	for _, name := range slices.Sorted(maps.Keys(l.RecordFlags)) {
		key += "\x00--" + name + "=" + l.RecordFlags[name]
	}
	if l.Remote.S3.Endpoint != "" {
		key += "\x00--s3-endpoint-url=" + l.Remote.S3.Endpoint
	}
	sum := sha256.Sum256([]byte(key))
	return string(clean) + "-" + hex.EncodeToString(sum[:4])
}
