package host

import (
	"runtime"
	"testing"
)

func TestSpareThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	t.Setenv("GOMAXPROCS", "3")
	before := runtime.GOMAXPROCS(0)
	if SpareThreads(); runtime.GOMAXPROCS(0) != before {
		t.Errorf("%d turns, %d were asked for by the environment", runtime.GOMAXPROCS(0), before)
	}
	t.Setenv("GOMAXPROCS", "")
	n := Cores
	if SpareThreads(); runtime.GOMAXPROCS(0) != n+waiting || Cores != n {
		t.Errorf("%d turns for %d cores", runtime.GOMAXPROCS(0), n)
	}
}
