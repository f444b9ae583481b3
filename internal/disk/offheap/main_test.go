package offheap

import (
	"os"
	"testing"

	"lcache/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: Mapped}))
}
