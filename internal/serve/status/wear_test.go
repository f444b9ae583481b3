package status

import "testing"

// TestWear: a write volume is extrapolated to a day, and to drive writes per day.
func TestWear(t *testing.T) {
	for _, c := range []struct {
		written        int64
		seconds, drive float64
		want           Wear
	}{
		{100e9, 200, 10e12, Wear{WrittenPerDay: 43.2e12, DriveWritesPerDay: 4.32}},
		{100e9, 200, 0, Wear{WrittenPerDay: 43.2e12}},
		{0, 3600, 1e12, Wear{}},
		{1e9, 59, 1e12, Wear{}}, // too short
	} {
		got := Wear{DriveBytes: c.drive}
		c.want.DriveBytes = c.drive
		if got.PerDay(c.written, c.seconds); got != c.want {
			t.Errorf("%d bytes in %v s: %+v, want %+v", c.written, c.seconds, got, c.want)
		}
	}
}
