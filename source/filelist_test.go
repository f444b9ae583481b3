package source_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lcache/source"
)

// writeList writes a list of files into a folder.
func writeList(t testing.TB, folder, text string) string {
	t.Helper()
	file := filepath.Join(folder, "list.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestListIdentity has the same cases as the Python client's test.
func TestListIdentity(t *testing.T) {
	b, err := os.ReadFile("../testdata/filelists.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct{ Why, Text, Identity string }
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden.Cases) < 5 {
		t.Fatalf("%d cases: %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		src := "arrow:@" + writeList(t, t.TempDir(), c.Text)
		if c.Identity == "" {
			c.Identity = src
		}
		if got := source.ListIdentity(src); got != c.Identity {
			t.Errorf("%s: got %s, want %s", c.Why, got, c.Identity)
		}
	}
	for _, src := range []string{"/data/@x", "arrow:/data/@x", "s3://b/@x", "arrow:@/missing", "arrow:@"} {
		if got := source.ListIdentity(src); got != src {
			t.Errorf("%s: got %s", src, got)
		}
	}
}

// TestListNamesShards reads windows of files in several folders, in the list's order.
func TestListNamesShards(t *testing.T) {
	top := t.TempDir()
	for i, name := range []string{"a/x.bin", "b/deep/x.bin", "b/*{1,2}[.bin", "lists/y.bin"} {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(string('a'+rune(i)), 8)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := writeList(t, filepath.Join(top, "lists"), "../b/*{1,2}[.bin\r\n\n"+top+"/a/x.bin\ny.bin\n../b/deep/x.bin")
	opts := source.Options{Records: source.RecordFlags{"record-bytes": "4"}}
	s, err := source.Open("bin:@"+file, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		b := make([]byte, e.Size)
		if err := s.Read(t.Context(), e, b); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Name+"="+string(b))
	}
	want := "b/*{1,2}[.bin/0=cccc b/*{1,2}[.bin/1=cccc a/x.bin/0=aaaa a/x.bin/1=aaaa lists/y.bin/0=dddd lists/y.bin/1=dddd b/deep/x.bin/0=bbbb b/deep/x.bin/1=bbbb"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	sum := sha256.Sum256([]byte(fmt.Sprintf("%[1]s/b/*{1,2}[.bin\n%[1]s/a/x.bin\n%[1]s/lists/y.bin\n%[1]s/b/deep/x.bin\n", top)))
	if want := fmt.Sprintf("bin:@%x/%s", sum, filepath.Base(top)); s.Identity() != want || source.IdentityOfList(s) != want {
		t.Errorf("identity %s, want %s", s.Identity(), want)
	}
	if folder, _ := source.ShardFolder("bin:@" + file); folder != top {
		t.Errorf("folder %s, want %s", folder, top)
	}

	other := writeList(t, top, strings.ReplaceAll(want, "=", ""))
	if !source.SameAs("bin:@"+file, "bin:@/gone", s.Identity()) || source.SameAs("bin:@"+other, "bin:@/gone", s.Identity()) {
		t.Error("a list that is gone is not the same by its content")
	}
	if err := os.WriteFile(file, []byte("y.bin"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.Identity() == source.ListIdentity("bin:@"+file) {
		t.Error("an open source has the identity of a list that was changed after it")
	}
}

func TestBadLists(t *testing.T) {
	top := t.TempDir()
	for _, c := range []struct{ why, src, text, want string }{
		{"empty", "bin:@", "\n\n", "it is empty"},
		{"twice", "bin:@", "a\n\nb/../a\n", `line 3: "` + top + `/a" is already in line 1`},
		{"an address", "bin:@", "a\ns3://b/x", `line 2: "s3://b/x" is an address`},
		{"binary", "bin:@", "a\n\x00\x01", "line 2: it has a NUL"},
		{"one long line", "bin:@", strings.Repeat("a", 5000), "line 1: it has 5000 bytes"},
		{"the root", "bin:@", "../../../../../../../../../../..", "line 1:"},
		{"an index", "ranges:@", "a", "an index names its files itself"},
	} {
		_, err := source.Open(c.src+writeList(t, top, c.text), source.Options{Records: source.RecordFlags{}})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	for src, want := range map[string]string{"bin:@": "it has no name", "bin:@" + top: "not a regular file", "bin:@" + top + "/gone": "no such file", "bin:@/dev/zero": "not a regular file"} {
		if _, err := source.Open(src, source.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", src, err)
		}
	}
}

// TestListOfMissing: a list of very many missing files is an error at once, and after a missing file the others are not indexed.
func TestListOfMissing(t *testing.T) {
	folder := t.TempDir()
	var text strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&text, "no-%06d.bin\n", i)
	}
	for list, want := range map[string]string{
		text.String():                 `shard "no-000000.bin" is missing, and so [0-9]+ more of the first [0-9]{4} of 200000: put it there, or correct the pattern`,
		"no-0.bin\na.bin\nno-1.bin\n": `shard "no-0.bin" is missing, and so 1 more: put it there, or correct the pattern`,
	} {
		if err := os.WriteFile(filepath.Join(folder, "a.bin"), make([]byte, 8), 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := source.Open("bin:@"+writeList(t, folder, list), source.Options{Records: source.RecordFlags{"record-bytes": "8"}, Jobs: 8})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.List(t.Context(), nil)
		if err == nil || !regexp.MustCompile(": "+want+"$").MatchString(err.Error()) {
			t.Errorf("%v\nwant %s", err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzList checks that the names of a list lead to its paths, each once.
func FuzzList(f *testing.F) {
	for _, text := range []string{"a\nb", "/a/b/c\n/a/b\n/a", "../x\r\n\n/\n", "//a//b/../c", "\ufeffa", "\x00", "s3://x/y", "/a\n/b"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		folder, names, err := source.ParseList(text, "/lists/here")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, name := range names {
			full := filepath.Join(folder, name)
			if name == "" || full != strings.TrimSuffix(folder, "/")+"/"+name || seen[name] || !filepath.IsAbs(full) {
				t.Errorf("folder %q, name %q", folder, name)
			}
			seen[name] = true
		}
	})
}
