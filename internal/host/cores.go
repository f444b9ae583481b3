// Package host says what this process may use of its machine: processor cores, and memory. It also gives Go code more threads than cores where much of it waits in file
// reads.
//
// A goroutine in a system call keeps its turn to run Go code (GOMAXPROCS of them) until the runtime's monitor takes it away, which may
// take 10 ms. On few cores, a few slow files of the 16 that are read at once then hold up all the others, and delivery with them.
//
// Nothing is kept except the number of cores: the files that tell limits are read each time. All functions may be called concurrently.
package host

import (
	"os"
	"runtime"
)

// Cores is how many cores Go found when the process started: those that it may run on, or less if a control group gives it less time.
var Cores = runtime.GOMAXPROCS(0)

// waiting is half of the files that are read at once.
const waiting = 8

// SpareThreads adds turns for threads that wait to the one for each core. A GOMAXPROCS in the environment stays.
func SpareThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(Cores + waiting)
	}
}
