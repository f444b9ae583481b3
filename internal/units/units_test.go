package units

import "testing"

func TestFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"},
		{Bytes(-1), "0 B"},
		{Bytes(999), "999 B"},
		{Bytes(138e9), "138 GB"},
		{Bytes(1.5e9), "1.5 GB"},
		{Bytes(2e6), "2 MB"},
		{Binary(1 << 20), "1 MiB"},
		{Binary(262144), "256 KiB"},
		{Plural(1, "class", "classes"), "1 class"},
		{Plural(1000, "class", "classes"), "1,000 classes"},
		{Rate(250e6, 1), "250 MB/s"},
		{Rate(250e6, 0), "–"},
		{PerSecond(8900, 2), "4,450"},
		{PerSecond(1, 0), "–"},
		{Percent(0, 10), "0 %"},
		{Percent(10, 10), "100 %"},
		{Percent(2, 1000), "0.2 %"},
		{Percent(42, 100), "42 %"},
		{Percent(99999, 100000), "99.9 %"}, // all but one is not all
		{Percent(1, 0), "–"},
		{Duration(0), "0 s"},
		{Duration(0.0004), "< 1 ms"},
		{Duration(0.04), "40 ms"},
		{Duration(0.42), "0.4 s"},
		{Duration(12.4), "12 s"},
		{Duration(59.99), "60 s"},
		{Duration(552), "9 min 12 s"},
		{Duration(160.06), "2 min 40 s"},
		{Duration(11100), "3 h 5 min"},
		{OfTotal(1.41e9, 1.5e9), "1.41 / 1.50 GB"},
		{OfTotal(20e6, 512e6), "20 / 512 MB"},
		{OfTotal(5, 100), "5 / 100 B"},
		{BothRates(3.84e9, 3.824e9, 8), "read 480 + write 478 MB/s"},
		{BothRates(0, 3.3e6, 2), "read 0.0 + write 1.6 MB/s"},
		{BothRates(0, 0, 1), "read 0 + write 0 B/s"},
		{BothRates(1, 1, 0), "read – + write –"},
		{Count(1234567), "1,234,567"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
