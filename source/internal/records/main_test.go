package records

import (
	"os"
	"testing"

	"lcache/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }
