package blockio_test

import (
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"lcache/blockio"
	"lcache/blockio/blockiotest"
	"lcache/iouring"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		os.Exit(child(what))
	}
	goleak.VerifyTestMain(m)
}

// openEngine opens an engine, or skips where the kernel has no io_uring.
func openEngine(t testing.TB, engine, direct string) *blockio.IO {
	t.Helper()
	io, err := blockio.Open(blockio.Options{Engine: engine, Direct: direct})
	var none *iouring.UnavailableError
	if errors.As(err, &none) {
		t.Skip(none)
	}
	if err != nil {
		t.Fatal(err)
	}
	return io
}

// choices are all values, or the one that the environment asks for.
func choices(env string, all ...string) []string {
	if v := os.Getenv(env); v != "" {
		return []string{v}
	}
	return all
}

func TestEngines(t *testing.T) {
	for _, engine := range choices("LCACHE_IO", "uring", "pread") {
		for _, direct := range choices("LCACHE_DIRECT", "auto", "off") {
			t.Run(engine+"/direct="+direct, func(t *testing.T) {
				t.Parallel()
				blockiotest.Run(t, func(t *testing.T) *blockio.IO { return openEngine(t, engine, direct) })
			})
		}
	}
}
