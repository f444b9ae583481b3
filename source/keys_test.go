package source

import (
	"fmt"
	"runtime"
	"testing"

	"lcache/source/internal/s3"
)

// TestListingMemory: a listing of many keys takes little more memory than their names.
func TestListingMemory(t *testing.T) {
	const many = 200_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, names := heap(), int64(0)
	k := newKeys(Options{}, "set/", func(int) {})
	items := make([]s3.Item, 1000)
	for i := range many {
		name := fmt.Sprintf("n%04d/%06d.JPEG", i%100, i)
		names += int64(len(name))
		if items[i%1000] = (s3.Item{Key: "set/" + name, Size: 100_000, Tag: fmt.Sprint(i)}); i%1000 == 999 {
			if err := k.take(items); err != nil {
				t.Fatal(err)
			}
		}
	}
	l, err := k.join()
	if err != nil || l.Samples().Len() != many {
		t.Fatalf("%+v, %v", l, err)
	}
	list := l.Samples()
	if each := (heap() - before - names) / many; each > 40 {
		t.Errorf("a key takes %d bytes in addition to its name, want at most 40", each)
	}
	if e := list.At(2001); e.Name != "n0001/000101.JPEG" || e.Label != 1 || e.Size != 100_000 {
		t.Errorf("the 2002nd of all is %+v", e)
	}
	runtime.KeepAlive(items)
}

// TestRemovedKeys: keys that the extensions exclude are counted like files of a directory.
func TestRemovedKeys(t *testing.T) {
	for _, c := range []struct {
		opts Options
		keys []string
		want int
	}{
		{Options{Exts: []string{".jpg"}}, []string{"a/1.jpg", "a/2.txt", "a/", "b/3.jpg", "README"}, 1},
		{Options{Exts: []string{".jpg"}, Flat: true}, []string{"a/1.jpg", "a/2.txt", "b/3.jpg", "README"}, 2},
		{Options{Exts: []string{".jpg"}}, []string{"1.jpg", "2.txt"}, 1},
		{Options{Exts: []string{".jpg"}, Group: GroupStem}, []string{"a/1.jpg", "a/1.txt"}, 1},
		{Options{}, []string{"a/1.jpg", "a/2.txt"}, 0},
	} {
		k := newKeys(c.opts, "", func(int) {})
		for _, key := range c.keys {
			if err := k.take([]s3.Item{{Key: key, Size: 1, Tag: key}}); err != nil {
				t.Fatal(err)
			}
		}
		if l, err := k.join(); err != nil || l.Removed != c.want {
			t.Errorf("%v of %v: %+v, %v; want %d", c.opts.Exts, c.keys, l, err, c.want)
		}
	}
}
