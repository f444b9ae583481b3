package caches

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// DefaultRoot is where caches lie if nothing else is said, and where that was taken from.
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

// Folder is the name of a source's folder in a root: <last name of the source>-<8 hex>. The digits stand for the whole source, which
// must be absolute, and for how it is listed, so that sources of one name do not meet. The Python client makes the same
// names: tests on both sides hold the same examples.
func Folder(source string, l Listing) string {
	name := strings.TrimRight(source, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	var clean []rune
	for _, r := range name {
		// What Python's \w takes.
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
	sum := sha256.Sum256([]byte(key))
	return string(clean) + "-" + hex.EncodeToString(sum[:4])
}
