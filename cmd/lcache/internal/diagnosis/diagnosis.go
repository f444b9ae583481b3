package diagnosis

import (
	"bytes"
	"errors"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"

	"lcache/internal/serve/status"
)

// Limits of a status.Diagnosis. With those of Lines they keep an answer far below the 16 MiB of a frame, though JSON makes text and profile longer.
const (
	mostStacks    = 2 << 20
	mostHeap      = 2 << 20
	mostArgs      = 256
	mostVariables = 256
	mostText      = 4 << 10 // of one argument or variable
)

// Process is what a process was started with.
type Process struct {
	Args    []string // with the program's name
	Command []string // the last of Args, if they are the command line of another program; nil: none
	Environ []string // NAME=value
	Log     *Lines
}

// Collect returns the diagnosis of this process.
func (p Process) Collect() status.Diagnosis {
	d := status.Diagnosis{GoVersion: runtime.Version(), Environment: map[string]string{}}
	d.Args, d.CommandArgs = withoutCommand(p.Args, p.Command)
	for i := range d.Args {
		d.Args[i] = bounded(d.Args[i])
	}
	for _, variable := range p.Environ {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case !strings.HasPrefix(name, "LCACHE_") || len(d.Environment)+len(d.Secrets) == mostVariables:
		case IsSecret(name):
			d.Secrets = append(d.Secrets, bounded(name))
		default:
			d.Environment[bounded(name)] = bounded(value)
		}
	}
	if p.Log != nil {
		d.Log, d.LogDropped = p.Log.Last()
	}
	d.Goroutines, d.GoroutinesCut = stacks(mostStacks)
	var err error
	if d.Heap, err = heap(); err != nil {
		d.HeapError = err.Error()
	}
	return d
}

// secretWords are in the names of variables whose values may be secrets. LCACHE_METRICS_TOKEN is one. LCACHE_CLUSTER_KEY has the path of a file, and is
// left out with them.
var secretWords = []string{"TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH"}

// IsSecret reports whether the value of a variable may be a secret.
func IsSecret(variable string) bool {
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(strings.ToUpper(variable), word) })
}

// withoutCommand returns the arguments before the command line of another program, and the length of that.
func withoutCommand(args, command []string) (own []string, left int) {
	own = args
	if n := len(args) - len(command); n >= 1 && slices.Equal(args[n:], command) {
		own = args[:n]
	} else if len(command) > 0 {
		own = args[:min(len(args), 2)] // the program and its verb
	}
	own = slices.Clone(own[:min(len(own), mostArgs)])
	return own, len(args) - len(own)
}

// bounded returns the first bytes of a text.
func bounded(text string) string { return text[:min(len(text), mostText)] }

// stacks returns the stacks of all goroutines, or the first bytes of them. The process stands still meanwhile.
func stacks(most int) (text string, cut bool) {
	for size := min(64<<10, most); ; size = min(2*size, most) {
		b := make([]byte, size)
		n := runtime.Stack(b, true)
		if n < size {
			return string(b[:n]), false
		}
		if size == most {
			return string(b[:n]), true
		}
	}
}

var errTooLarge = errors.New("the heap profile is larger than 2 MiB")

// heap returns the profile of the heap as of the last garbage collection.
func heap() ([]byte, error) {
	var b limited
	if err := pprof.Lookup("heap").WriteTo(&b, 0); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// limited is a buffer of at most mostHeap bytes.
type limited struct{ bytes.Buffer }

func (b *limited) Write(p []byte) (int, error) {
	if b.Len()+len(p) > mostHeap {
		return 0, errTooLarge
	}
	return b.Buffer.Write(p)
}
