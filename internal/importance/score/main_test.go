package score

import (
	"os"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}))
}
