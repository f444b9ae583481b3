// Command lcache serves training data from local SSDs in exactly the shuffled order in which it will be read.
//
// Each file here is one verb: it fills an options struct, calls the engine, and prints the report that it gets back.
// Results go to stdout; progress, logs and errors go to stderr. The texts are made by pure functions, so that tests hold
// their shape without running an engine.
package main

import (
	"os"
	"runtime"
)

// waiting is how many threads more than the cores may run Go code. A goroutine that waits in a file read keeps its turn until the
// runtime's monitor takes it away, up to 10 ms later. Without spare turns a few slow files, of the 16 that are read at once, hold
// up all others and delivery with them.
const waiting = 8

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + waiting)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
