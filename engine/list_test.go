package engine

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/source"
)

// settle waits until the folders of d are old enough that a record of them proves something: their ctime can't be set.
func (d *dataset) settle(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"", "class-0", "class-1", "class-2"} {
		var st unix.Stat_t
		for {
			if err := unix.Stat(filepath.Join(d.dir, folder), &st); err != nil {
				t.Fatal(err)
			}
			left := 2100*time.Millisecond - time.Since(time.Unix(st.Ctim.Unix()))
			if left <= 0 {
				break
			}
			time.Sleep(left)
		}
	}
}

// TestRelist: the next ingest lists only folders that changed, unless a flag asks for all of them or a sample was found to be a different file.
func TestRelist(t *testing.T) {
	testenv.Long(t)
	d := makeDataset(t, 30, mixedSizes)
	d.settle(t)
	dirs := []string{filepath.Join(t.TempDir(), "cache")}
	o := ingest.Options{Dirs: dirs, Block: 128 << 10, Memory: 64 << 20, NoPrefill: true}
	expect := func(when string, o ingest.Options, changed int, added int) {
		t.Helper()
		_, rep := ingested(t, d, o)
		if rep.ChangedSamples != changed || rep.AddedSamples != added || rep.Changed != (changed+added > 0) || rep.Samples != 30+added {
			t.Errorf("%s: %d samples, %d changed, %d added; want %d and %d", when, rep.Samples, rep.ChangedSamples, rep.AddedSamples, changed, added)
		}
	}
	expect("first", o, 0, 0)
	d.write(t, "class-0/000003.bin", pseudo(1, 100))
	expect("edited in its place", o, 0, 0)
	again := o
	again.Relist = true
	expect("listed whole", again, 1, 0)

	d.write(t, "class-0/000004.bin", pseudo(2, 100))
	expect("another edited", o, 0, 0)
	e := open(t, Options{Dirs: dirs, IO: testIO()})
	c := attach(t, e)
	_, err := c.Get(context.Background(), []sample.Index{4}, nil)
	if wrong := new(source.SampleError); !errors.As(err, &wrong) || !errors.Is(err, source.ErrChanged) {
		t.Errorf("a sample that changed: %v", err)
	}
	c.Disconnected()
	closeEngine(t, e)
	expect("after a server met it", o, 1, 0)

	d.write(t, "class-1/000010.bin", pseudo(3, 100))
	if _, err := cache.Verify(context.Background(), cache.VerifyOptions{Dirs: dirs, Against: d.dir, Repair: true, IO: testIO()}); err != nil {
		t.Fatal(err)
	}
	d.write(t, "class-1/new", pseudo(3, 100))
	expect("its folder changed too", o, 1, 1)
}
