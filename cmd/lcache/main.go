// Command lcache serves training data from local SSDs in exactly the shuffled order in which it will be read.
//
// Each file here is one verb: it fills an options struct, calls the engine, and prints the report that it gets back.
// Results go to stdout; progress, logs and errors go to stderr. The texts are made by pure functions, so that tests hold
// their shape without running an engine.
package main

import (
	"os"

	"lcache/cores"
)

func main() {
	cores.Spare()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
