package blockio

import "fmt"

// choose starts the engine that the caller wants, or the best that works here.
func (io *IO) choose(want string) error {
	switch want {
	case "", "auto", "pread":
		io.engine = newPool(io.ops)
		return nil
	default:
		return fmt.Errorf("engine is %q, want auto, uring or pread", want)
	}
}

// Register makes memory known to the kernel for good, which saves pinning its pages for each transfer. It is best effort.
func (io *IO) Register(mem []byte) error { return io.engine.register(mem) }

// Unregister undoes Register of the same mem. It must come before mem is unmapped.
func (io *IO) Unregister(mem []byte) error { return io.engine.unregister(mem) }
