package tarshard

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// memory is a shard in memory that counts its reads.
type memory struct {
	b     []byte
	reads int
	read  int64
	err   error
}

func (m *memory) Size() int64     { return int64(len(m.b)) }
func (m *memory) Version() uint64 { return 7 }
func (m *memory) Piece() int      { return 1 << 20 }
func (m *memory) ReadAt(_ context.Context, dst []byte, off int64) error {
	m.reads++
	m.read += int64(len(dst))
	if m.err != nil {
		return m.err
	}
	if off < 0 || off+int64(len(dst)) > int64(len(m.b)) {
		return io.ErrUnexpectedEOF
	}
	copy(dst, m.b[off:])
	return nil
}

func write(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, h := range headers {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte{byte('a' + i%26)}, int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestIndex(t *testing.T) {
	long := strings.Repeat("long/", 60) + "name.jpg"
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		headers := []tar.Header{
			{Name: "c/", Typeflag: tar.TypeDir}, {Name: "c/a.jpg", Size: 3}, {Name: "c/a.cls", Size: 1}, {Name: "README", Size: 600}, {Name: "__meta__/a.jpg", Size: 7},
			{Name: "c/b.jpg", Size: 0}, {Name: "c/b.Cls", Size: MaxText}, {Name: "c/c.cls", Size: MaxText + 1}, {Name: "c/d.bin", Size: 5000}, {Name: "c/a.jpg", Size: 9},
		}
		if format != tar.FormatUSTAR {
			headers = append(headers, tar.Header{Name: long, Size: 17}, tar.Header{Name: "ü.jpg", Size: 1})
		}
		for i := range headers {
			headers[i].Format = format
		}
		o := &memory{b: write(t, headers...)}
		members, err := Index(t.Context(), "x.tar", o)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for n, h := range headers {
			if h.Typeflag == tar.TypeDir || h.Name == "__meta__/a.jpg" {
				continue
			}
			m := members[i]
			i++
			want := bytes.Repeat([]byte{byte('a' + n%26)}, int(h.Size))
			if m.Name != h.Name || m.Size != h.Size || !bytes.Equal(o.b[m.Off:m.Off+m.Size], want) {
				t.Errorf("%v: member %d is %+v, want %s with %d bytes", format, n, m, h.Name, h.Size)
			}
			if text := strings.HasSuffix(strings.ToLower(h.Name), ".cls") && h.Size <= MaxText; text && m.Text != string(want) || !text && m.Text != "" {
				t.Errorf("%v: the text of %s is %q", format, h.Name, m.Text)
			}
		}
		if i != len(members) || o.reads != 1 {
			t.Errorf("%v: %d members, want %d, in %d reads", format, len(members), i, o.reads)
		}
	}
}

// TestIndexReads: small members are read over; large ones are skipped.
func TestIndexReads(t *testing.T) {
	var small, large []tar.Header
	for i := range 40 {
		small = append(small, tar.Header{Name: fmt.Sprintf("%d.jpg", i), Size: 200_000})
	}
	for i := range 8 {
		large = append(large, tar.Header{Name: fmt.Sprintf("%d.jpg", i), Size: 3 << 20})
	}
	o := &memory{b: write(t, small...)}
	if _, err := Index(t.Context(), "x", o); err != nil || o.reads > 12 {
		t.Errorf("%d reads of %d bytes, %v", o.reads, o.read, err)
	}
	o = &memory{b: write(t, large...)}
	if _, err := Index(t.Context(), "x", o); err != nil || o.reads > 12 || o.read > 3<<20 {
		t.Errorf("%d reads of %d bytes, %v", o.reads, o.read, err)
	}
}

func TestIndexErrors(t *testing.T) {
	whole := write(t, tar.Header{Name: "a.jpg", Size: 1000}, tar.Header{Name: "b.jpg", Size: 5000})
	damaged := bytes.Clone(whole)
	damaged[1536+512+20] ^= 1
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"in a member":       {whole[:4000], `shard "x.tar" is truncated: its member "b.jpg" ends at byte 7048, and the shard has 4000: copy or write it again`},
		"in a header":       {whole[:1700], `shard "x.tar" is truncated: it ends after its member "a.jpg": copy or write it again`},
		"empty":             {nil, `shard "x.tar" is truncated: it has 0 bytes, and a tar has at least 512: copy or write it again`},
		"gzip":              {append([]byte("\x1f\x8b"), make([]byte, 1000)...), `shard "x.tar" is compressed, and samples can't be read at random in it: unpack it (gunzip), and name the .tar`},
		"a small gzip":      {append([]byte("\x1f\x8b"), make([]byte, 90)...), `shard "x.tar" is compressed, and samples can't be read at random in it: unpack it (gunzip), and name the .tar`},
		"a very small gzip": {[]byte("\x1f\x8b"), `shard "x.tar" is compressed, and samples can't be read at random in it: unpack it (gunzip), and name the .tar`},
		"a small file":      {[]byte("text"), `shard "x.tar" is truncated: it has 4 bytes, and a tar has at least 512: copy or write it again`},
		"no tar":            {bytes.Repeat([]byte("text"), 1000), `shard "x.tar" is not a tar file: check the pattern`},
		"a damaged header":  {append(whole[:1536:1536], bytes.Repeat([]byte("text"), 1000)...), `shard "x.tar" is damaged after its member "a.jpg": archive/tar: invalid tar header: copy or write it again`},
	} {
		if _, err := Index(t.Context(), "x.tar", &memory{b: c.b}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	if _, err := Index(t.Context(), "x.tar", &memory{b: whole, err: os.ErrPermission}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("an object that can't be read: %v", err)
	}
	if err := CheckName("d/x.tar.ZST", false); err == nil || err.Error() != `shard "d/x.tar.ZST" is compressed, and samples can't be read at random in it: unpack it (zstd -d) and name the .tar, or give --stream to read it once, front to back` {
		t.Error(err)
	}
	if err := CheckName("x.gz.tar", false); err != nil {
		t.Error(err)
	}
}

// TestRefused: a shard from tar(1) with links and a sparse file.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	sparse, err := os.Create(filepath.Join(dir, "s.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(sparse.Truncate(1<<20), sparse.Close(), os.WriteFile(filepath.Join(dir, "a.jpg"), []byte("a"), 0o666),
		os.Symlink("a.jpg", filepath.Join(dir, "l.jpg")), os.Link(filepath.Join(dir, "a.jpg"), filepath.Join(dir, "h.jpg")), os.Symlink("a.jpg", filepath.Join(dir, "nodot")))
	if err != nil {
		t.Fatal(err)
	}
	all := func(string) bool { return true }
	for _, format := range []string{"gnu", "pax"} {
		for _, c := range []struct{ file, want string }{
			{"l.jpg", `shard "x.tar": its member "l.jpg" is a symbolic link: write the shard with the file itself (tar -h)`},
			{"h.jpg", `shard "x.tar": its member "h.jpg" is a hard link: write the shard with a file of its own in its place`},
			{"s.jpg", `shard "x.tar": its member "s.jpg" is sparse: write the shard without tar -S`},
			{"nodot", ""},
		} {
			b, err := exec.Command("tar", "--format="+format, "--sparse", "-C", dir, "-cf", "-", "a.jpg", c.file).Output()
			if err != nil {
				t.Skipf("no GNU tar here: %v", err)
			}
			members, err := Index(t.Context(), "x.tar", &memory{b: b})
			if err == nil {
				_, _, err = Group("x.tar", members, all)
			}
			if got := fmt.Sprint(err); got != c.want && !(c.want == "" && err == nil) {
				t.Errorf("%s, %s: %v\nwant %s", format, c.file, err, c.want)
			}
		}
	}
}

// FuzzIndex: any bytes give an error, or members inside the shard.
func FuzzIndex(f *testing.F) {
	f.Add(write(f, tar.Header{Name: "a.jpg", Size: 10}, tar.Header{Name: "a.cls", Size: 1}))
	f.Add(write(f, tar.Header{Name: strings.Repeat("n", 300) + ".jpg", Size: 10, Format: tar.FormatGNU}))
	f.Add(write(f, tar.Header{Name: "ü.jpg", Size: 10, Format: tar.FormatPAX}))
	f.Fuzz(func(t *testing.T, b []byte) {
		members, err := Index(t.Context(), "x", &memory{b: b})
		if err != nil {
			return
		}
		for _, m := range members {
			if m.Kind == File && (m.Off < 0 || m.Size < 0 || m.Off+m.Size > int64(len(b))) {
				t.Errorf("%+v in %d bytes", m, len(b))
			}
		}
		if _, _, err := Group("x", members, func(string) bool { return true }); err != nil {
			return
		}
		if _, again, err := decode(encode("x", int64(len(b)), 1, members)); err != nil || len(again) != len(members) {
			t.Errorf("kept: %d of %d members, %v", len(again), len(members), err)
		}
	})
}

// TestNumbersInHeaders: invented sizes and names in a header cause an error that names their limit.
func TestNumbersInHeaders(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "a.jpg", Size: math.MaxInt64, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	b.Write(make([]byte, 4096))
	for text, shard := range map[string][]byte{
		`shard "x.tar" is truncated: its member "a.jpg" ends at byte 9223372036854776319, and the shard has 4608: copy or write it again`: b.Bytes(),
		" (65540 bytes) is too long, at most 65536 bytes: rename it":                                                                      write(t, tar.Header{Name: strings.Repeat("n", 65536) + ".jpg", Format: tar.FormatPAX}),
	} {
		if _, err := Index(t.Context(), "x.tar", &memory{b: shard}); err == nil || !strings.HasSuffix(err.Error(), text) {
			t.Errorf("%v, want …%s", err, text)
		}
	}
}
