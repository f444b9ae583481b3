package bench

import (
	"testing"

	"lcache/internal/verdict"
)

func TestBoundBy(t *testing.T) {
	for _, c := range []struct {
		name string
		e    Epoch
		want verdict.Cause
	}{
		{"nothing", Epoch{}, "unknown"},
		{"as fast as the device", Epoch{Seconds: 10, Samples: 100, Bytes: 95e8, Limit: 1e9}, "disk"},
		{"misses", Epoch{Seconds: 10, Samples: 100, Misses: 3, Bytes: 95e8, Limit: 1e9}, "source"},
		{"few misses", Epoch{Seconds: 10, Samples: 100, Misses: 2, Bytes: 95e8, Limit: 1e9}, "disk"},
		{"Python is busy", Epoch{Into: "Python", Seconds: 10, Samples: 100, Bytes: 5e9, Limit: 1e9, Client: 8.5}, "Python"},
		{"all CPUs are busy", Epoch{Into: "nothing", Seconds: 10, Samples: 100, Bytes: 5e9, Limit: 1e9, CPU: 33}, "CPU"},
		{"nothing is busy", Epoch{Into: "nothing", Seconds: 10, Samples: 100, Bytes: 5e9, Limit: 1e9, CPU: 5}, "unknown"},
		{"device not measured", Epoch{Into: "nothing", Seconds: 10, Samples: 100, Bytes: 5e9, CPU: 5}, "unknown"},
	} {
		if got := verdict.Judge(c.e.facts(4)).Cause; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
