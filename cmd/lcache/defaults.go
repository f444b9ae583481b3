package main

import (
	"os"
	"strings"

	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
)

// cacheRoots returns the folders in which caches lie, one on each SSD, and where their names come from.
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
	root, from, err := cachedir.DefaultRoot()
	return []string{root}, from, err
}

// rootDefault returns the line for the chosen root.
func rootDefault(roots []string, from string) cache.Default {
	return cache.Default{Name: "cache", Value: strings.Join(roots, ","), From: from}
}
