package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive makes an archive of some headers, each with the bytes of its size.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			if _, err := io.CopyN(w, zeros{}, h.Size); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	z.Close()
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func file(name string, size int64) tar.Header { return tar.Header{Name: name, Size: size, Mode: 0o600} }

// TestReadRefuses: a hostile archive is one clear error, and never more memory than the limits.
func TestReadRefuses(t *testing.T) {
	l := limits{members: 20, member: 1 << 20, total: 3 << 20}
	many := []tar.Header{file(readme, 1)}
	for i := range l.members {
		many = append(many, file(fmt.Sprintf("m%d", i), 0))
	}
	var large []tar.Header
	for i := range 5 {
		large = append(large, file(fmt.Sprintf("m%d", i), l.member))
	}
	whole := archive(t, file(readme, 100), file("server-1/log.jsonl", 3000))
	bomb := &bytes.Buffer{}
	z := gzip.NewWriter(bomb)
	io.CopyN(z, zeros{}, l.total+(1<<20))
	z.Close()
	for _, c := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"nothing", nil, "it is not compressed by gzip"},
		{"another file", []byte("hello, this is a text"), "it is not compressed by gzip"},
		{"a half", whole[:len(whole)/2], "unexpected EOF"},
		{"another archive", archive(t, file("data.txt", 10)), "it has no README.txt"},
		{"a path out of the folder", archive(t, file(readme, 1), file("../x", 1)), `member "../x" has a name`},
		{"an absolute path", archive(t, file("/etc/passwd", 1)), `member "/etc/passwd" has a name`},
		{"a terminal's escape in a name", archive(t, file("a\x1b[2J", 1)), `has a name that no member has`},
		{"a link", archive(t, tar.Header{Name: readme, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), `is not a plain file`},
		{"a hard link", archive(t, tar.Header{Name: readme, Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), `is not a plain file`},
		{"a folder", archive(t, tar.Header{Name: "server-1/", Typeflag: tar.TypeDir}), `is not a plain file`},
		{"a member twice", archive(t, file(readme, 1), file(readme, 1)), "is in it twice"},
		{"many members", archive(t, many...), "more than 20 members"},
		{"a large member", archive(t, file(readme, l.member+1)), "the limit is 1 MiB"},
		{"many large members", archive(t, large...), "more than 3 MiB"},
		{"a bomb without members", bomb.Bytes(), "it has no README.txt"}, // zeros are the end of an archive
	} {
		err := l.read(bytes.NewReader(c.bytes), func(Member) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "this is not a bundle") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: the error controls a terminal: %q", c.name, err)
		}
	}
}

// TestWriteRead: what was written is read again, and no file is ever replaced.
func TestWriteRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	b := &Bundle{Members: []Member{{Name: readme, Data: []byte("hello\n")}, {Name: "server-1/log.jsonl", Data: []byte("{}\n")}, {Name: "server-12/heap.pb.gz"}}}
	size, err := b.Write(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != size || info.Mode().Perm() != 0o600 {
		t.Errorf("%v of %d bytes, want %d; %v", info.Mode(), info.Size(), size, err)
	}
	if _, err := b.Write(path); err == nil || !strings.Contains(err.Error(), "it exists: give another name") {
		t.Errorf("a second time: %v", err)
	}
	if err := os.Symlink(filepath.Join(t.TempDir(), "target"), path+".link"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write(path + ".link"); err == nil {
		t.Error("it wrote through a link")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	if err := Read(f, func(m Member) error {
		if want := b.Members[n]; m.Name != want.Name || !bytes.Equal(m.Data, want.Data) {
			t.Errorf("member %d is %s: %q", n, m.Name, m.Data)
		}
		n++
		return nil
	}); err != nil || n != len(b.Members) {
		t.Errorf("%d members, %v", n, err)
	}
}

// TestBound: a member that Read would refuse is left out, and the bundle can be read.
func TestBound(t *testing.T) {
	b := &Bundle{Members: []Member{{Name: readme}, {Name: "server-1/status-1.json", Data: make([]byte, 2000)}, {Name: "a", Data: make([]byte, 900)}, {Name: "b", Data: make([]byte, 900)}}}
	b.bound(limits{member: 1000, total: 3000})
	if got := fmt.Sprintf("%s %s %d %d", b.Members[1].Name, b.Members[1].Data, len(b.Members[2].Data), len(b.Members[3].Data)); got != "server-1/status-1-json.txt left out, because it has 2000 bytes\n 900 35" {
		t.Error(got)
	}
}

// TestPrint: text can't control the terminal, long members are cut, and a status shows what changed.
func TestPrint(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{To: &out}
	for _, m := range []Member{
		{Name: "a.txt", Data: []byte("\x1b[2J\tred\r\nlong " + strings.Repeat("x", 5000) + "\n" + strings.Repeat("line\n", 1000))},
		{Name: "server-1/status-1.json", Data: []byte("{\n \"a\": 1,\n \"b\": 2\n}\n")},
		{Name: "server-1/status-2.json", Data: []byte("{\n \"a\": 1,\n \"b\": 3\n}\n")},
		{Name: "server-2/status-1.json", Data: []byte("{\n \"a\": 9,\n \"b\": 3\n}\n")},
		{Name: "server-2/heap.pb.gz", Data: []byte("no profile")},
	} {
		if err := p.Print(m); err != nil {
			t.Fatal(err)
		}
	}
	got := out.String()
	for _, want := range []string{`\x1b[2J`, "x …\n", "… 602 more lines: tar -xzOf FILE a.txt", "as the one before, but for 1 lines\n \"b\": 3\n\n", "{\n \"a\": 9,", "not readable as a profile: "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %.3000s", want, got)
		}
	}
	if strings.ContainsRune(got, 0x1b) {
		t.Error("an escape reaches the terminal")
	}
}

// FuzzRead: any bytes are a bundle or one error. Whatever is read can be printed.
func FuzzRead(f *testing.F) {
	f.Add(archive(f, file(readme, 10), file("server-1/status-1.json", 100), file("server-1/heap.pb.gz", 10)))
	f.Add(archive(f, tar.Header{Name: readme, Typeflag: tar.TypeSymlink, Linkname: "x"}))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		p := &Printer{To: &out}
		err := Read(bytes.NewReader(b), p.Print)
		if err != nil && !strings.HasPrefix(err.Error(), "this is not a bundle") {
			t.Errorf("error %v", err)
		}
		if strings.ContainsRune(out.String(), 0x1b) {
			t.Error("an escape reaches the terminal")
		}
	})
}

// FuzzProfile: any bytes are a profile without paths, or one error.
func FuzzProfile(f *testing.F) {
	for _, text := range []string{"", "\x0a\x04\x08\x01\x10\x02\x32\x00\x32\x03abc"} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := newRedactor().profile(b); err == nil {
			if _, err := readProfile(out); err != nil {
				t.Errorf("the result is no profile: %v", err)
			}
		}
		var out bytes.Buffer
		if err := (&Printer{To: &out}).Print(Member{Name: "heap.pb.gz", Data: b}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzDocument: any bytes are a document without the name, or one error.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"jobs":[{"id":"zqmarkqz","x":{"zqmarkqz":1}}],"events":[{"text":"at zqmarkqz"}]}`))
	f.Add([]byte(`["zqmarkqz",1e9,null,true]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newRedactor()
		r.learn(b, logTable)
		out, err := r.document(b, logTable)
		if err == nil && len(out) == 0 {
			t.Error("nothing, and no error")
		}
	})
}
