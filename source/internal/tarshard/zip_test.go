package tarshard

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// zipObject is a zip file in memory.
type zipObject []byte

func (o zipObject) Size() int64     { return int64(len(o)) }
func (o zipObject) Version() uint64 { return 1 }
func (o zipObject) Piece() int      { return 1000 }
func (o zipObject) ReadAt(_ context.Context, dst []byte, off int64) error {
	if off < 0 || off > int64(len(o)) || int64(len(dst)) > int64(len(o))-off {
		return io.ErrUnexpectedEOF
	}
	copy(dst, o[off:])
	return nil
}

// zipOf returns an archive of members; each is a header and its content.
func zipOf(t testing.TB, members ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		h, named := members[i].(*zip.FileHeader)
		if !named {
			h = &zip.FileHeader{Name: members[i].(string)}
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(members[i+1].(string)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zipListing formats the members of an archive with their bytes.
func zipListing(t testing.TB, file []byte) string {
	t.Helper()
	members, err := IndexZip(t.Context(), "a.zip", zipObject(file), false)
	if err != nil {
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "a.zip") {
			t.Errorf("an error of several lines, or without the shard: %q", err)
		}
		return err.Error()
	}
	var b strings.Builder
	for _, m := range members {
		if m.Off < 0 || m.Size < 0 || m.Off > int64(len(file))-m.Size || len(m.Text) > MaxText {
			t.Fatalf("%+v in %d bytes", m, len(file))
		}
		fmt.Fprintf(&b, " %s=%s/%s", m.Name, file[m.Off:m.Off+m.Size], m.Text)
	}
	return b.String()
}

func TestIndexZip(t *testing.T) {
	link := &zip.FileHeader{Name: "a.lnk"}
	link.SetMode(0o777 | 1<<27) // fs.ModeSymlink
	large := strings.Repeat("x", 5000)
	good := zipOf(t, "d/", "", "d/0.img", large, "d/0.cls", "7\n", "README", "", "__meta__/x.y", "")
	for _, c := range []struct {
		file []byte
		want string
	}{
		{good, " d/0.img=" + large + "/ d/0.cls=7\n/7\n README=/"},
		{zipOf(t), ""},
		{zipOf(t, "0.a", "1", &zip.FileHeader{Name: "0.b", Method: zip.Deflate}, "22"), `shard "a.zip": member "0.b" is compressed (deflate), so its bytes are not in the file: give --stream to unpack it once, front to back, or write the archive without compression (zip -0, or ZIP_STORED in Python)`},
		{zipOf(t, &zip.FileHeader{Name: "README", Method: zip.Deflate}, "x", "0.a", "1"), " README=/ 0.a=1/"},
		{zipOf(t, link, "target"), `shard "a.zip": member "a.lnk" is a symbolic link: write the archive with the file itself`},
		{flagged(zipOf(t, "0.a", "1")), `shard "a.zip": member "0.a" is encrypted: write the archive without a password`},
		{[]byte("PK\x03\x04 but no more"), `shard "a.zip": it is not a zip file, or is truncated: copy or write it again`},
		{nil, `shard "a.zip": it is not a zip file, or is truncated: copy or write it again`},
		{good[:len(good)-1], `shard "a.zip": it is not a zip file, or is truncated: copy or write it again`},
		{good[100:], `shard "a.zip": member "d/0.img": its header is not where the directory says: the file is damaged, or not written completely: copy or write it again (EOF)`},
	} {
		if got := zipListing(t, c.file); got != c.want {
			t.Errorf("%.30q: %.300s\nwant %.300s", c.file, got, c.want)
		}
	}
}

// flagged sets the flag of encryption of the first member.
func flagged(file []byte) []byte {
	at := bytes.Index(file, []byte("PK\x01\x02"))
	file[at+8] |= 1
	return file
}

// TestIndexZipReads: the headers of small members cost no read each, and large members are not read.
func TestIndexZipReads(t *testing.T) {
	var members []any
	for i := range 300 {
		members = append(members, fmt.Sprintf("%d.x", i), strings.Repeat("y", 50))
	}
	file := zipOf(t, append(members, "big.x", strings.Repeat("z", 1<<22), "last.x", "")...)
	o := &countedZip{zipObject: file}
	if found, err := IndexZip(t.Context(), "a.zip", o, false); err != nil || len(found) != 302 {
		t.Fatal(len(found), err)
	}
	if o.reads > 90 || o.bytes > 90_000 {
		t.Errorf("%d reads of %d bytes", o.reads, o.bytes)
	}
}

type countedZip struct {
	zipObject
	reads, bytes int
}

func (o *countedZip) ReadAt(ctx context.Context, dst []byte, off int64) error {
	o.reads, o.bytes = o.reads+1, o.bytes+len(dst)
	return o.zipObject.ReadAt(ctx, dst, off)
}

// FuzzIndexZip: any bytes give an error, or members in the file. Numbers of the directory are damaged one by one.
func FuzzIndexZip(f *testing.F) {
	good := zipOf(f, "d/0.img", "pixels", "d/0.cls", "7", "1.x", "")
	f.Add(good, 0, uint32(0))
	for at := bytes.Index(good, []byte("PK\x01\x02")); at < len(good)-4; at += 4 {
		f.Add(good, at, uint32(0xffffffff))
	}
	f.Fuzz(func(t *testing.T, file []byte, at int, value uint32) {
		if at >= 0 && at < len(file)-4 {
			file = bytes.Clone(file)
			binary.LittleEndian.PutUint32(file[at:], value)
		}
		zipListing(t, file)
		members, err := IndexZip(t.Context(), "a.zip", zipObject(file), true)
		if err != nil {
			return
		}
		out := &limitedWriter{}
		if err := UnpackZip(t.Context(), "a.zip", zipObject(file), out); err == nil && End(members) != uint64(out.Len()) {
			t.Errorf("members end at %d, and %d bytes were unpacked", End(members), out.Len())
		}
	})
}

// limitedWriter takes some MiB.
type limitedWriter struct{ bytes.Buffer }

func (w *limitedWriter) Write(b []byte) (int, error) {
	if w.Len()+len(b) > 8<<20 {
		return 0, errors.New("enough")
	}
	return w.Buffer.Write(b)
}

// TestUnpackZipTooLong: a member that unpacks to more than its directory says never gives bytes to the next one.
func TestUnpackZipTooLong(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range []string{"a.x", "b.x"} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte(name), 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	var out bytes.Buffer
	if err := UnpackZip(t.Context(), "a.zip", zipObject(file), &out); err != nil || out.String() != strings.Repeat("a.x", 100)+strings.Repeat("b.x", 100) {
		t.Fatalf("%d bytes: %v", out.Len(), err)
	}
	for _, at := range []int{20, 24} { // both sizes in the directory
		bad := bytes.Clone(file)
		binary.LittleEndian.PutUint32(bad[bytes.Index(bad, []byte("PK\x01\x02"))+at:], 7)
		out.Reset()
		if err := UnpackZip(t.Context(), "a.zip", zipObject(bad), &out); err == nil || !strings.Contains(err.Error(), `member "a.x" can't be unpacked`) || out.Len() > 0 {
			t.Errorf("%d bytes: %v", out.Len(), err)
		}
	}
}
