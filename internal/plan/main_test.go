package plan

import (
	"os"
	"testing"

	"lcache/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }
