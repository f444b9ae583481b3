package server

import "os"

// Where temporary folders are in memory, tests may have caches there all the same.
func init() { os.Setenv("LCACHE_TMPFS", "1") }
