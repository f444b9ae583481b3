package cachedir

// Reserve returns the free-space reserve of a file system: the bytes that a cache leaves free, whatever its budget. size is in bytes.
func Reserve(size uint64) uint64 { return max(1e9, size/20) }
