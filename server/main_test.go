package server

import (
	"os"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m, leaktest.Count{What: "bytes outside the heap", Now: offheap.Mapped}, leaktest.Count{What: "registered bytes", Now: blockio.Registered}))
}
