// Command lcache serves training data from local SSDs in exactly the shuffled order in which it will be read.
//
// Each file is one command. It parses the flags into an options struct, calls the package that does the work, and prints the report. Results
// go to stdout; progress, log messages and errors go to stderr. Pure functions in the files *_text.go make the texts, so tests of texts need
// no engine.
package main

import (
	"os"

	"lcache/internal/host"
)

func main() {
	host.SpareThreads()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
