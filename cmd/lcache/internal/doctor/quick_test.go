package doctor

import (
	"errors"
	"testing"
	"time"
)

func TestQuick(t *testing.T) {
	dir := t.TempDir()
	d := openTestDisk(t, dir)
	defer d.Close()
	dev, err := d.quick(t.Context(), 10*time.Millisecond)
	for length := 20 * time.Millisecond; errors.Is(err, errBusy); length *= 2 { // a busy machine takes longer
		dev, err = d.quick(t.Context(), length)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, rate := range map[string]float64{"read": dev.Read, "write": dev.Write, "read, of both": dev.BothRead, "written, of both": dev.BothWrite, "reads": dev.IOPS, "writes": dev.WriteIOPS, "of both": dev.BothIOPS} {
		if !(rate > 0) {
			t.Errorf("%s: %v", name, rate)
		}
	}
	if dev.OpBytes != assumedOp || dev.OpMeasured {
		t.Errorf("operations of %d bytes, measured %v", dev.OpBytes, dev.OpMeasured)
	}
}

// TestBytesAreBounded: a stream ends when it has moved its bytes, long before its time, and the rate is that of the time it took.
func TestBytesAreBounded(t *testing.T) {
	d := openTestDisk(t, t.TempDir())
	defer d.Close()
	d.most = 8 << 20
	began := time.Now()
	rates, err := d.Run(t.Context(), time.Hour, Stream{Size: 1 << 20, Depth: 2}, Stream{Size: 1 << 20, Depth: 2, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began).Seconds()
	if most := max(rates[0].Bytes, rates[1].Bytes); most < d.most || most > d.most+4<<20 {
		t.Errorf("got %d counted bytes, want %d and up to 4 MiB in flight", most, d.most)
	}
	if got := rates[0].Seconds; !(got > 0 && got <= took) {
		t.Errorf("%v s were counted of %v", got, took)
	}
}

func TestTogether(t *testing.T) {
	for _, c := range []struct{ read, write, both, want float64 }{
		{3000, 3000, 3000, 3000}, {3000, 3000, 3290, 3290}, {3000, 3000, 6000, 0}, {500, 250, 480, 480}, {500, 500, 400, 0}, {100, 0, 0, 0},
	} {
		if got := together(c.read, c.write, c.both); got != c.want {
			t.Errorf("%v alone and %v alone, %v together: %v, want %v", c.read, c.write, c.both, got, c.want)
		}
	}
}

// TestAtLeastBoth: the rates of reads alone and of writes alone become at least their rates in the mixed step.
func TestAtLeastBoth(t *testing.T) {
	dev := Device{Read: 454e6, Write: 258e6, BothRead: 664e6, BothWrite: 678e6}
	dev.atLeastBoth()
	if dev.Read != 664e6 || dev.Write != 678e6 {
		t.Errorf("reads %v, writes %v", dev.Read, dev.Write)
	}
	dev = Device{Read: 500e6, Write: 400e6, BothRead: 250e6, BothWrite: 200e6}
	dev.atLeastBoth()
	if dev.Read != 500e6 || dev.Write != 400e6 {
		t.Errorf("undisturbed: reads %v, writes %v", dev.Read, dev.Write)
	}
}

func TestIdentify(t *testing.T) {
	dir := t.TempDir()
	a, err := Identify(dir)
	if err != nil || a.FileSystem == "" || a.Bytes == 0 {
		t.Fatalf("%+v (%v)", a, err)
	}
	if b, err := Identify(dir + "/not/there/yet"); a != b || err != nil {
		t.Errorf("%+v (%v), want %+v", b, err, a)
	}
}
