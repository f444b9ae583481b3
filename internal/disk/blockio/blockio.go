// Package blockio reads and writes whole blocks of files, without the page cache if possible.
//
// It hides how a transfer reaches the kernel: through an io_uring with registered buffers, through one without, or through a pool of
// goroutines with pread and pwrite. A self-test in Open decides. It also hides O_DIRECT with its alignment, and short transfers. IO is an
// engine with a bounded number of transfers in flight, File a file opened through it, Op one asynchronous transfer. Alloc makes aligned
// memory for direct I/O. The package does not interpret the bytes, retries no device errors and has no cache.
//
// All methods of IO and File may be called concurrently; their comments name methods that must not be called from a Done. An Op, and the
// memory of its buffer, belong to the engine from Submit until Done is called, even if its waiter has given up.
package blockio

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// DefaultDepth is the default limit of transfers in flight in each direction.
const DefaultDepth = 32

// maxDepth keeps the ring's completion queue (twice the next power of two) far below the kernel's limit of 65,536.
const maxDepth = 4096

// ErrClosed is the error of operations that are submitted after Close of their IO, or of their File, has begun.
var ErrClosed = errors.New("block I/O is closed")

// Options of Open. The zero value is the automatic choice.
type Options struct {
	Engine  string       // "auto" (or empty), "uring" or "pread"; uring fails instead of falling back
	Direct  string       // "auto" (or empty), "on" or "off" ("1" or "0", as in LCACHE_DIRECT); with on, OpenFile fails if the file system has no O_DIRECT
	Depth   int          // limit of reads in flight, and of writes and syncs in flight; 0: DefaultDepth
	PerFile int          // the same for one file; 0: Depth. With several devices, one slow device then can't take all of Depth
	Logger  *slog.Logger // receives the chosen engine and the reason; nil: no messages
}

// IO is an engine and its operations in flight.
type IO struct {
	engine engine
	ops    *backlog
	direct string
	log    *slog.Logger

	inject atomic.Pointer[injector]
	plain  atomic.Pointer[plainInjector]

	mu     sync.Mutex // guards reason
	reason string
}

// An engine carries out operations that it takes from the backlog. Its close is called once the backlog is closing, and returns when all of its
// goroutines have ended.
type engine interface {
	name() string
	register(mem []byte, later bool) error
	unregister(mem []byte) error
	close()
}

// Open starts an engine. With Engine "auto" it returns an error only for invalid options, because the pool works everywhere. Reason has the
// reason why a better engine was not chosen.
func Open(opts Options) (*IO, error) {
	depth := opts.Depth
	if depth == 0 {
		depth = DefaultDepth
	}
	if depth < 1 || depth > maxDepth {
		return nil, fmt.Errorf("open block I/O: depth %d is not between 1 and %d", opts.Depth, maxDepth)
	}
	perFile := opts.PerFile
	if perFile == 0 {
		perFile = depth
	}
	if perFile < 1 {
		return nil, fmt.Errorf("open block I/O: depth %d of one file is not positive", opts.PerFile)
	}
	direct := opts.Direct
	switch direct {
	case "":
		direct = "auto"
	case "0":
		direct = "off"
	case "1":
		direct = "on"
	case "auto", "on", "off":
	default:
		return nil, fmt.Errorf("open block I/O: direct is %q, want auto, on or off", opts.Direct)
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	io := &IO{direct: direct, log: log, ops: newBacklog(depth, perFile)}
	if err := io.choose(opts.Engine, selfTestTime); err != nil {
		return nil, fmt.Errorf("open block I/O: %w", err)
	}
	log.Info("block I/O", "engine", io.Name(), "depth", depth, "direct", direct, "reason", io.Reason())
	return io, nil
}

// Name returns the engine: "io_uring", "io_uring (unregistered)" or "pread".
func (io *IO) Name() string { return io.engine.name() }

// Direct reports whether O_DIRECT is tried. File.Direct reports whether a file has it.
func (io *IO) Direct() bool { return io.direct != "off" }

// Reason returns why this engine was chosen, and the missing features, for people.
func (io *IO) Reason() string {
	io.mu.Lock()
	defer io.mu.Unlock()
	return io.reason
}

func (io *IO) setReason(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	io.mu.Lock()
	defer io.mu.Unlock()
	if strings.Contains(io.reason, text) {
		return
	}
	if io.reason != "" {
		text = io.reason + "; " + text
	}
	io.reason = text
}

// Close waits for all submitted operations, including their Dones, and ends the engine's goroutines. It waits for a hung device without a
// limit: callers that can't wait call it in a goroutine. It must not be called from a Done. Further calls also wait. The error is always nil today.
func (io *IO) Close() error {
	io.ops.close()
	io.engine.close()
	return nil
}
