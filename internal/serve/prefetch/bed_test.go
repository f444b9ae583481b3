package prefetch_test

import (
	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/testenv"
	"os"
	"testing"
	"time"
)

const soon = 20 * time.Millisecond

type bed struct {
	*fetchtest.Bed
	io *blockio.IO
}

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}
