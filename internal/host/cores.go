// Package host reports which part of the machine this process may use: processor cores and memory. It also gives Go
// code more threads than cores, for processes in which many threads wait in file reads.
//
// A goroutine in a system call keeps its turn to run Go code (there are GOMAXPROCS turns) until the runtime's monitor
// takes it away, which may take 10 ms. On a machine with few cores, a few slow files of the 16 that are read at once
// delay all the others, and delivery with them.
//
// Only the number of cores is kept; the files with limits are read at each call. All functions may be called
// concurrently.
package host

import (
	"os"
	"runtime"
)

// Cores is the number of cores that Go found when the process started: the cores that it may run on, or fewer if a
// control group limits its CPU time.
var Cores = runtime.GOMAXPROCS(0)

// waiting is half of the number of files that are read at once.
const waiting = 8

// SpareThreads adds turns for waiting threads to the one turn for each core. It keeps a GOMAXPROCS from the
// environment.
func SpareThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(Cores + waiting)
	}
}
