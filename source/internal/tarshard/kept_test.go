package tarshard

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func openKept(t *testing.T, path string) *Kept {
	t.Helper()
	k, err := OpenKept(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shards")
	k := openKept(t, path)
	want := map[string][]Member{}
	for i := range 20 {
		name := fmt.Sprintf("%d.tar", i)
		for j := range i {
			want[name] = append(want[name], Member{Name: fmt.Sprintf("%d\n.jpg", j), Off: int64(j), Size: int64(i), Kind: Kind(j % 4), Text: fmt.Sprint(j)})
		}
		if err := k.Add(name, 1000, uint64(i), want[name]); err != nil {
			t.Fatal(err)
		}
	}
	check := func(k *Kept, lost string) {
		t.Helper()
		for i := range 20 {
			name := fmt.Sprintf("%d.tar", i)
			got, ok := k.Get(name, 1000, uint64(i))
			if ok == (name == lost) || ok && len(got)+len(want[name]) > 0 && !reflect.DeepEqual(got, want[name]) {
				t.Errorf("%s: %v, %v", name, got, ok)
			}
			if _, ok := k.Get(name, 1001, uint64(i)); ok {
				t.Errorf("%s of another size is known", name)
			}
			if _, ok := k.Get(name, 1000, uint64(i+1)); ok {
				t.Errorf("%s of another version is known", name)
			}
		}
	}
	check(k, "")
	again := openKept(t, path)
	check(again, "")
	// Any truncation loses only the last record.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := int(again.records["19.tar"].off)
	for _, cut := range []int{last, last + 1, last + 39, len(b) - 1} {
		if err := os.WriteFile(path, b[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		k := openKept(t, path)
		check(k, "19.tar")
		if err := k.Add("19.tar", 1000, 19, want["19.tar"]); err != nil {
			t.Fatal(err)
		}
		check(k, "")
		check(openKept(t, path), "")
	}
	for _, at := range []int{last, last + 9, last + 20, last + 50, len(b) - 1} {
		flipped := append([]byte(nil), b...)
		flipped[at] ^= 1
		if err := os.WriteFile(path, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		check(openKept(t, path), "19.tar")
	}
}

// TestKeptForgets: records that no longer belong to the source do not fill the disk.
func TestKeptForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shards")
	list := make([]Member, 100)
	for version := range 30 {
		k := openKept(t, path)
		for i := range 3 {
			if _, ok := k.Get(fmt.Sprint(i), 1, uint64(version)); ok {
				t.Errorf("shard %d of version %d is known before it is added", i, version)
			}
			if err := k.Add(fmt.Sprint(i), 1, uint64(version), list); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Forget(); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if got, ok := k.Get(fmt.Sprint(i), 1, uint64(version)); !ok || len(got) != len(list) {
				t.Errorf("shard %d of version %d is lost", i, version)
			}
		}
	}
	one := int64(len(encode("0", 1, 1, list)))
	if info, err := os.Stat(path); err != nil || info.Size() > 6*one {
		t.Errorf("%d bytes, %v; one record has %d", info.Size(), err, one)
	}
}

// FuzzKept: any bytes give an error, or a record that is encoded in the same way again.
func FuzzKept(f *testing.F) {
	f.Add(encode("x.tar", 1000, 5, []Member{{Name: "a.jpg", Off: 512, Size: 3}, {Name: "a.cls", Off: 2048, Size: 1, Text: "7"}}))
	f.Add(encode("", 0, 0, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "shards")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		k := openKept(t, path)
		for name, r := range k.records {
			if got, ok := k.Get(name, int64(r.size), r.version); !ok {
				t.Errorf("%q was found, and then not: %v", name, got)
			}
		}
	})
}
