package epochlayout

import (
	"os"
	"testing"

	"lcache/leaktest"
	"lcache/offheap"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m, leaktest.Count{What: "bytes outside the heap", Now: offheap.Mapped}))
}
