package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// The linker sets these: see ldflags in python/program_build.py. commit is the full hash, and ends with -dirty if files were changed; date is the commit's, in UTC.
var (
	version = ""
	commit  = ""
	date    = ""
)

// build is what this program was built from. A field is empty if it is not known.
type build struct{ version, commit, date string }

// builtFrom returns what the linker set. go build and go install set only what the go command itself records.
func builtFrom() build {
	b := build{version, commit, date}
	if info, ok := debug.ReadBuildInfo(); ok && b.version == "" {
		b.version = info.Main.Version
	}
	if b.version == "" || b.version == "(devel)" {
		b.version = "0.1-dev"
	}
	return b
}

// versionText is what --version prints: version, commit, date, and the compiler with its target.
func versionText() string {
	b := builtFrom()
	about := []string{fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)}
	if b.commit != "" {
		hash, changed, _ := strings.Cut(b.commit, "-")
		about = []string{"commit " + strings.TrimSuffix(hash[:min(len(hash), 12)]+"-"+changed, "-"), b.date, about[0]}
	}
	return fmt.Sprintf("%s (%s)", b.version, strings.Join(about, ", "))
}
