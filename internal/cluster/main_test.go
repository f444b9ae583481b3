package cluster

import (
	"os"
	"testing"

	"lcache/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		os.Exit(memberProgram())
	}
	os.Exit(testenv.Run(m))
}
