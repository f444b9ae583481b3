package source_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/sample"
	"lcache/source"
	"lcache/source/sourcetest"
)

// shelf is a folder of shards, one for each folder of the files, and the Mutator for them.
type shelf struct {
	*tree                                      // their local folder
	put   func(name string, data []byte) error // writes a shard
	files map[string][]byte                    // the files in the shards
}

func newShelf(t testing.TB, files map[string][]byte) *shelf {
	t.Helper()
	s := &shelf{tree: newTree(t, nil), files: maps.Clone(files)}
	s.put = s.tree.Write
	return s.fill(t)
}

func (s *shelf) fill(t testing.TB) *shelf {
	t.Helper()
	written := map[string]bool{}
	for name := range s.files {
		if written[shardOf(name)] {
			continue
		}
		written[shardOf(name)] = true
		if err := s.write(name); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func shardOf(name string) string {
	folder, _, found := strings.Cut(name, "/")
	if !found {
		folder = "top"
	}
	return folder + ".tar"
}

// sampleOf returns the sample of a file, whose name must have no dot.
func sampleOf(name string) string {
	if strings.Contains(name, ".") {
		return ""
	}
	return shardOf(name) + "/" + name
}

// write writes the shard with the file again.
func (s *shelf) write(name string) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, file := range slices.Sorted(maps.Keys(s.files)) {
		if shardOf(file) != shardOf(name) || sampleOf(file) == "" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Name: file + ".bin", Size: int64(len(s.files[file])), Mode: 0o644}); err != nil {
			return err
		}
		w.Write(s.files[file])
	}
	return errors.Join(w.Close(), s.put(shardOf(name), b.Bytes()))
}

func (s *shelf) Write(name string, data []byte) error { s.files[name] = data; return s.write(name) }

func (s *shelf) Replace(name string, data []byte) error {
	if s.tree == nil {
		return s.Write(name, data)
	}
	at := s.path(shardOf(name))
	return errors.Join(os.Rename(at, at+".old"), s.Write(name, data), os.Remove(at+".old"))
}

func (s *shelf) Remove(name string) error { delete(s.files, name); return s.write(name) }

func (s *shelf) Limits() sourcetest.Limits {
	return sourcetest.Limits{OwnOrder: true, Together: true, Name: sampleOf}
}

func openTar(t testing.TB, pattern string, opts source.Options) source.Source {
	t.Helper()
	s, err := source.Open("tar:"+pattern, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestTar(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept=%t", kept), func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
				s, opts := newShelf(t, files), source.Options{}
				if kept {
					opts.Kept = t.TempDir() + "/shards"
				}
				return openTar(t, s.dir+"/*.tar", opts), s
			})
		})
	}
}

// shards writes tar files of members, with the bytes that member returns.
func shards(t testing.TB, files map[string]string) *tree {
	t.Helper()
	tr := newTree(t, nil)
	for name, members := range files {
		if err := tr.Write(name, shard(t, strings.Fields(members)...)); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// shard returns a tar of members, each "name" or "name=content".
func shard(t testing.TB, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		name, data := member(m)
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func member(m string) (name string, data []byte) {
	name, text, given := strings.Cut(m, "=")
	if given {
		return name, []byte(text)
	}
	return name, sourcetest.Content(byte(len(name)), 1000+len(name))
}

// shapeOf formats a listing: name, label, parts.
func shapeOf(entries []sample.Entry) string {
	var all []string
	for _, e := range entries {
		var parts []string
		for _, p := range e.Parts {
			parts = append(parts, p.Ext)
		}
		all = append(all, fmt.Sprintf("%s=%d(%s)", e.Name, e.Label, strings.Join(parts, " ")))
	}
	return strings.Join(all, " ")
}

func TestTarList(t *testing.T) {
	labels := filepath.Join(t.TempDir(), "labels.csv")
	if err := os.WriteFile(labels, []byte("a.tar/x,9\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		files   map[string]string
		pattern string
		opts    source.Options
		want    string
		classes string
	}{
		"braces": {map[string]string{"s-00.tar": "b.jpg a.jpg", "s-01.tar": "a.jpg", "s-10.tar": "a.jpg"}, "s-{01,00}.tar", source.Options{},
			"s-01.tar/a=0(jpg) s-00.tar/b=0(jpg) s-00.tar/a=0(jpg)", ""},
		"a star":           {map[string]string{"d1/b.tar": "b.jpg", "d2/a.tar": "a.jpg", "d2/a.txt": ""}, "d*/*.tar", source.Options{}, "d1/b.tar/b=0(jpg) d2/a.tar/a=0(jpg)", ""},
		"a star in name":   {map[string]string{"*.tar": "b.jpg", "a.tar": "a.jpg"}, "*.tar", source.Options{}, "*.tar/b=0(jpg)", ""},
		"one file":         {map[string]string{"a.tar": "a.jpg"}, "a.tar", source.Options{}, "a.tar/a=0(jpg)", ""},
		"cls":              {map[string]string{"a.tar": "x.cls=7 x.jpg y.cls=-1\n y.jpg"}, "a.tar", source.Options{}, "a.tar/x=7(jpg cls) a.tar/y=-1(jpg cls)", ""},
		"cls and a folder": {map[string]string{"a.tar": "d/x.cls=7 d/x.jpg"}, "a.tar", source.Options{}, "a.tar/d/x=7(jpg cls)", ""},
		"cls, flat":        {map[string]string{"a.tar": "x.cls=7 y.jpg"}, "a.tar", source.Options{Flat: true}, "a.tar/x=0(cls) a.tar/y=0(jpg)", ""},
		"a table":          {map[string]string{"a.tar": "x.cls=no"}, "a.tar", source.Options{Labels: labels}, "a.tar/x=9(cls)", ""},
		"folders": {map[string]string{"a.tar": "d/x.jpg b/x.jpg", "b.tar": "b/x.jpg d/e/x.jpg"}, "{a,b}.tar", source.Options{},
			"a.tar/d/x=1(jpg) a.tar/b/x=0(jpg) b.tar/b/x=0(jpg) b.tar/d/e/x=2(jpg)", "b d d/e"},
		"first part": {map[string]string{"a.tar": "a.cls=1 a.json a.seg.png a.jpg a.txt b.cls=1 b.json b.txt c.cls=2"}, "a.tar", source.Options{},
			"a.tar/a=1(seg.png cls json jpg txt) a.tar/b=1(json cls txt) a.tar/c=2(cls)", ""},
		"a chosen part": {map[string]string{"a.tar": "a.cls=1 a.json a.seg.PNG"}, "a.tar", source.Options{Part: ".Seg.png"}, "a.tar/a=1(seg.png cls json)", ""},
		"ext":           {map[string]string{"a.tar": "a.cls=1 a.jpg b.JPG b.txt"}, "a.tar", source.Options{Exts: []string{"jpg"}}, "a.tar/a=0(jpg) a.tar/b=0(jpg)", ""},
		"skipped":       {map[string]string{"a.tar": "__m__/a.jpg ./a.JPG README ./a.txt"}, "a.tar", source.Options{}, "a.tar/a=0(jpg txt)", ""},
	} {
		tr := shards(t, c.files)
		classes, entries, err := openTar(t, tr.dir+"/"+c.pattern, c.opts).List(t.Context(), nil)
		if got := shapeOf(entries); err != nil || got != c.want || strings.Join(classes, " ") != c.classes {
			t.Errorf("%s: %s, %q, %v\nwant %s", what, got, classes, err, c.want)
		}
	}
}

// TestTarErrors: every error of a listing, word for word. DIR stands for the folder.
func TestTarErrors(t *testing.T) {
	for what, c := range map[string]struct {
		files         map[string]string
		pattern, want string
	}{
		"missing":       {map[string]string{"s-0.tar": "a.jpg"}, "s-{0..3}.tar", `shard "s-1.tar" is missing, and so 2 more: put it there, or correct the pattern`},
		"no match":      {map[string]string{"s-0.tar": "a.jpg"}, "t*.tar", `no file matches "t*.tar" in "DIR": check the pattern`},
		"bad bracket":   {map[string]string{"s-0.tar": "a.jpg"}, "t[.tar", `"t[.tar" is not a valid pattern: a [ needs a ]`},
		"braces":        {map[string]string{"s-0.tar": "a.jpg"}, "t{0..1.tar", `its braces don't match: each { needs a }, or write \{ for a brace in a name`},
		"twice":         {map[string]string{"s-0.tar": "a.jpg"}, "s-{0,0}.tar", `shard "s-0.tar" is named twice: correct the pattern`},
		"upward":        {map[string]string{"s-0.tar": "a.jpg"}, "{s-0,../x}.tar", `shard "../x.tar" leads out of "DIR": write the folder that all shards have in common before the first brace`},
		"gzip":          {map[string]string{"s-0.tar.gz": "a.jpg"}, "*.gz", `shard "s-0.tar.gz" is compressed, and samples can't be read at random in it: unpack it (gunzip) and name the .tar, or give --stream to read it once, front to back`},
		"no samples":    {map[string]string{"s-0.tar": "README"}, "s-0.tar", `no samples: its 1 shards hold no file`},
		"mixed cls":     {map[string]string{"s-0.tar": "a.cls=1 b.jpg"}, "s-0.tar", `sample "s-0.tar/a" has a part cls, and "s-0.tar/b" has none: add one to all samples, or give a file of labels (--labels)`},
		"wrong cls":     {map[string]string{"s-0.tar": "a.cls=cat"}, "s-0.tar", `list sample "s-0.tar/a": its part cls is "cat", which is not an integer of 32 bits: correct it, or give a file of labels (--labels), or --flat`},
		"large cls":     {map[string]string{"s-0.tar": "a.cls=2147483648"}, "s-0.tar", `list sample "s-0.tar/a": its part cls is "2147483648", which is not an integer of 32 bits: correct it, or give a file of labels (--labels), or --flat`},
		"long cls":      {map[string]string{"s-0.tar": "a.cls"}, "s-0.tar", `list sample "s-0.tar/a": its part cls is a text of more than 64 bytes, which is not an integer of 32 bits: correct it, or give a file of labels (--labels), or --flat`},
		"mixed folders": {map[string]string{"s-0.tar": "d/a.jpg b.jpg"}, "s-0.tar", `sample "s-0.tar/b" is in no folder, but others are, so folders can't be the labels: give a file of labels (--labels), or --flat`},
		"apart":         {map[string]string{"s-0.tar": "a.jpg b.jpg a.txt"}, "s-0.tar", `shard "s-0.tar": the members of sample "a" are not adjacent: write the shard with its names sorted`},
		"a part twice":  {map[string]string{"s-0.tar": "a.jpg a.JPG"}, "s-0.tar", `shard "s-0.tar": sample "a" has the part "jpg" twice, as "a.jpg" and as "a.JPG": rename one of them`},
	} {
		tr := shards(t, c.files)
		_, _, err := openTar(t, tr.dir+"/"+c.pattern, source.Options{}).List(t.Context(), nil)
		want := fmt.Sprintf("list source %q: ", "tar:"+tr.dir+"/"+c.pattern) + strings.ReplaceAll(c.want, "DIR", tr.dir)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", what, err, want)
		}
	}
	tr := shards(t, map[string]string{"s-0.tar": "a.jpg b.jpg", "d.tar/x": ""})
	if err := os.Truncate(tr.path("s-0.tar"), 3000); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"s-0.tar": `shard "s-0.tar" is truncated: its member "b.jpg" ends at byte 3053, and the shard has 3000: copy or write it again`,
		"d.tar":   `shard "d.tar": it is a folder: name the files in it, such as "` + tr.dir + `/d.tar/*"`,
	} {
		_, _, err := openTar(t, tr.dir+"/"+pattern, source.Options{}).List(t.Context(), nil)
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v\nwant %s", pattern, err, want)
		}
	}
	for src, want := range map[string]string{
		"tar:":              `open source "tar:": it names no shard: give a pattern such as tar:/data/train-{000..146}.tar`,
		"tar:/data/":        `open source "tar:/data/": it names no shard: give a pattern such as tar:/data/train-{000..146}.tar`,
		"tar:ftp://b/x.tar": `open source "tar:ftp://b/x.tar": scheme ftp:// is unknown: give a pattern of files, or one that begins with s3:// or https://`,
		"tar:/no/where.tar": `open source "tar:/no/where.tar": open source "/no": no such file or directory: check its path`,
	} {
		if _, err := source.Open(src, source.Options{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", src, err, want)
		}
	}
}

// TestTarLast: of members with one name the last counts, and a message says so once for each shard.
func TestTarLast(t *testing.T) {
	tr := shards(t, map[string]string{"a.tar": "x.txt=first y.txt=other x.txt=last y.txt=more"})
	var said bytes.Buffer
	s := openTar(t, tr.dir+"/a.tar", source.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil || shapeOf(entries) != "a.tar/x=0(txt) a.tar/y=0(txt)" {
		t.Fatalf("%s, %v", shapeOf(entries), err)
	}
	dst := make([]byte, entries[0].Size)
	if err := s.Read(t.Context(), entries[0], dst); err != nil || string(dst) != "last" {
		t.Errorf("%q, %v", dst, err)
	}
	if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); len(lines) != 1 || !strings.Contains(lines[0], "first=x.txt members=2") {
		t.Errorf("said %q", lines)
	}
}

// TestTarKept: an unchanged shard is not read again; a changed one is, without the others.
func TestTarKept(t *testing.T) {
	tr := shards(t, map[string]string{"a.tar": "x.cls=1 x.jpg", "b.tar": "x.cls=2 x.jpg"})
	opts := source.Options{Kept: filepath.Join(t.TempDir(), "shards")}
	listed := func() string {
		t.Helper()
		_, entries, err := openTar(t, tr.dir+"/{a,b}.tar", opts).List(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return shapeOf(entries)
	}
	const want = "a.tar/x=1(jpg cls) b.tar/x=2(jpg cls)"
	if got := listed(); got != want {
		t.Fatal(got)
	}
	// Wrong bytes with the time and size of the right ones: only a read would notice them.
	info, err := os.Stat(tr.path("a.tar"))
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(name string, at time.Time) error {
		return errors.Join(os.WriteFile(tr.path(name), bytes.Repeat([]byte("?"), int(info.Size())), 0o666), os.Chtimes(tr.path(name), at, at))
	}
	if err := spoil("a.tar", info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := tr.Write("b.tar", shard(t, "x.cls=3", "y.cls=4")); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != "a.tar/x=1(jpg cls) b.tar/x=3(cls) b.tar/y=4(cls)" {
		t.Error(got)
	}
	if err := spoil("a.tar", info.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openTar(t, tr.dir+"/{a,b}.tar", opts).List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `shard "a.tar" is not a tar file`) {
		t.Errorf("changed: %v", err)
	}
}
