package compress_test

import (
	"os"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m, leaktest.Count{What: "bytes outside the heap", Now: offheap.Mapped}))
}
