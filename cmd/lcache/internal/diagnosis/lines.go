// Package diagnosis collects what a process knows about itself: its last log messages, its command line, its settings, and the profiles of its
// goroutines and its heap. A server answers DIAGNOSE with it.
//
// Lines keeps the last log messages of a process. A process has one, and it is the only place where messages are kept. Collect makes a
// status.Diagnosis, which is bounded, and leaves out what may be a secret: the command line of another program, and variables with such names. Everything may be called concurrently.
package diagnosis

import (
	"bytes"
	"slices"
	"sync"
)

// Limits of Lines.
const (
	mostLines     = 500
	mostLineBytes = 4 << 10 // a longer line is left out: half a JSON object can't be read
	mostBytes     = 256 << 10
)

// Lines keeps the last lines that are written to it, at most 500 lines and 256 KiB. The zero value is ready to use.
type Lines struct {
	mu      sync.Mutex // guards the fields that follow
	lines   []string   // the oldest first
	bytes   int        // of lines
	dropped int64
}

// Write keeps one line. It never fails.
func (l *Lines) Write(line []byte) (int, error) {
	text := string(bytes.TrimRight(line, "\n"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(text) > mostLineBytes {
		l.dropped++
		return len(line), nil
	}
	l.lines, l.bytes = append(l.lines, text), l.bytes+len(text)
	old := 0
	for ; len(l.lines)-old > mostLines || l.bytes > mostBytes; old++ {
		l.bytes -= len(l.lines[old])
	}
	l.lines, l.dropped = slices.Delete(l.lines, 0, old), l.dropped+int64(old)
	return len(line), nil
}

// Last returns the kept lines, the oldest first, and the number of lines that are no longer kept.
func (l *Lines) Last() (lines []string, dropped int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines), l.dropped
}
