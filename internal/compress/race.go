//go:build race

package compress

import (
	"runtime"
	"unsafe"
)

// tellRace reports to the race detector that lz4 reads src and writes dst. The detector can't see that, because the
// Makefile compiles the encoder without it, and the decoder is assembly.
func tellRace(dst, src []byte) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(src)), len(src))
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(dst)), len(dst))
}
