package main

import (
	"os"
	"path/filepath"
	"strings"

	"lcache/caches"
	"lcache/engine"
)

// cacheRoots is where the folders of sources lie, one on each SSD, and where that was taken from.
func cacheRoots(given []string) (roots []string, from string, err error) {
	if len(given) > 0 {
		return given, "as given", nil
	}
	if v := os.Getenv(envName("cache")); v != "" {
		if err := (dirs{&roots}).Set(v); err != nil {
			return nil, "", usagef("%s=%s: %w", envName("cache"), v, err)
		}
		return roots, "$" + envName("cache"), nil
	}
	root, from, err := caches.DefaultRoot()
	return []string{root}, from, err
}

// home is where the cache of a source lies: a folder in each root. A root that is a cache itself is meant as that.
func home(roots []string, source string, exts []string, flat bool) []string {
	if c, err := caches.Look(roots[0]); err == nil && c.Source != "" {
		return roots
	}
	folder := caches.Folder(source, exts, flat)
	var dirs []string
	for _, root := range roots {
		dirs = append(dirs, filepath.Join(root, folder))
	}
	return dirs
}

// rootDefault says which root was chosen where none was given.
func rootDefault(roots []string, from string) engine.Default {
	return engine.Default{Name: "cache", Value: strings.Join(roots, ","), From: from}
}
