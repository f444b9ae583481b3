package bundle

import (
	"flag"
	"os"
	"testing"

	"lcache/internal/testenv"
)

var update = flag.Bool("update", false, "write words.txt")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testenv.Run(m))
}
