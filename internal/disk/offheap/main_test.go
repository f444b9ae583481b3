package offheap

import (
	"os"
	"testing"

	"lcache/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m, leaktest.Count{What: "bytes outside the heap", Now: Mapped}))
}
