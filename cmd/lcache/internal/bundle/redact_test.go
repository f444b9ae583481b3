package bundle

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/serve/status"
)

func newRedactor() *redactor { return &redactor{names: newNames(), ours: map[string]bool{}} }

// filled fills all text in a value: with a marked name, or with a constant if the field is kept. It reports the fields that no table lists.
func filled(t *testing.T, v reflect.Value, key string, of table, n *int) {
	switch v.Kind() {
	case reflect.String:
		if _, listed := of.fields[key]; !listed {
			t.Errorf("field %q of text is in no table: decide what it is", key)
		}
		if of.fields[key] == keep {
			v.SetString("kept")
			return
		}
		*n++
		v.SetString(fmt.Sprintf("zq%dmark", *n))
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				name = key
			}
			if f.IsExported() && name != "-" && f.Type.String() != "time.Time" {
				filled(t, v.Field(i), name, of, n)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(t, v.Elem(), key, of, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			filled(t, v.Index(i), key, of, n)
		}
	case reflect.Map:
		*n++
		v.Set(reflect.MakeMap(v.Type()))
		inner := reflect.New(v.Type().Elem()).Elem()
		filled(t, inner, key, of, n)
		v.SetMapIndex(reflect.ValueOf(fmt.Sprintf("zq%dmark", *n)), inner)
		*n++
	}
}

// TestEveryField: each field with text is in the table of its document, and no name in any field survives. A new field fails here until somebody has decided
// what it is.
func TestEveryField(t *testing.T) {
	for _, c := range []struct {
		doc any
		of  table
	}{{&status.Document{}, statusTable}, {&description{}, helloTable}, {&doctor.Report{}, machineTable}, {&process{}, processTable}} {
		t.Run(reflect.TypeOf(c.doc).Elem().String(), func(t *testing.T) {
			marks := 0
			filled(t, reflect.ValueOf(c.doc).Elem(), "", c.of, &marks)
			doc, err := json.Marshal(c.doc)
			if err != nil || marks < 5 || !bytes.Contains(doc, []byte("zq2mark")) {
				t.Fatalf("%v: %d marks in %s", err, marks, doc)
			}
			r := newRedactor()
			r.learn(doc, c.of)
			out, err := r.document(doc, c.of)
			if err != nil {
				t.Fatal(err)
			}
			if i := bytes.Index(out, []byte("zq")); i >= 0 {
				t.Errorf("a name is left: …%s", out[max(0, i-60):min(len(out), i+40)])
			}
			if !bytes.Contains(out, []byte(`"kept"`)) {
				t.Error("constants did not stay")
			}
			var back any
			if err := json.Unmarshal(out, &back); err != nil {
				t.Errorf("the document is no JSON: %v", err)
			}
		})
	}
}

// TestText: words of lcache and numbers stay in a sentence. All other words are replaced, and known names even if they are words.
func TestText(t *testing.T) {
	r := newRedactor()
	r.names.person("dataset", "train")
	r.names.person("host", "node7.corp")
	r.names.person("user", "Mary Shelley")
	r.spaced = r.names.spacedNames()
	// In this order, because placeholders are counted.
	for _, c := range [][2]string{
		{"the bottleneck is now the disk", "the bottleneck is now the disk"},
		{"sample 17 (okapi/neck-3.jpg): no such file or directory", "sample 17 (dir-1/file-1.jpg): no such file or directory"},
		{`open "my secret folder/neck-3.jpg": permission denied`, `open "dir-2/file-1.jpg": permission denied`},
		{"12 source retries in 5 min: 503 from s3://bucket7/pre/x.tar?X-Sig=abc", "12 source retries in 5 min: 503 from s3://bucket-1/dir-3/file-2.tar"},
		{"https://joe:hunter2@files.corp/a.tar: connection refused", "https://host-2/file-3.tar: connection refused"},
		{"job train of node7.corp:7946 came", "job dataset-1 of host-1:7946 came"},
		{"files of Mary Shelley are gone", "files of user-1 are gone"},
		{"it is at 127.0.0.1:9400, 99.5 % in 2m30s", "it is at 127.0.0.1:9400, 99.5 % in 2m30s"},
		{"peer 10.1.2.3:80 and 10.1.2.3", "peer host-3:80 and host-3"},
		{`a file " without an end zqmark`, `a file " without an end name-1`},
		{"cache=/nvme/alice/c sample=zqmark", "cache=/dir-4/dir-5/file-4 sample=name-1"},
		{"[zqmark] zqmark, zqmark; (zqmark)", "[name-1] name-1, name-1; (name-1)"},
		{"open /proc/meminfo: read 7 of 9 samples [LC003] at 2026-11-26T19:53:08Z", "open /proc/meminfo: read 7 of 9 samples [LC003] at 2026-11-26T19:53:08Z"},
		{"lookup secret-bucket.s3.corp on 8.8.8.8:53: no such host", "lookup name-2 on host-4:53: no such host"},
		{"zqa,zqb;zqc|zqd→zqa", "name-3,name-4;name-5|name-6→name-3"},
	} {
		if got := r.text(c[0]); got != c[1] {
			t.Errorf("%s\n got %s\nwant %s", c[0], got, c[1])
		}
	}
	raw := &redactor{names: newNames(), raw: true}
	for text, want := range map[string]string{
		"retry https://joe:hunter2@files.corp/a.tar?sig=1: refused": "retry https://files.corp/a.tar refused",
		"retry HTTPS://joe:hunt@er2@files.corp/a.tar":               "retry HTTPS://files.corp/a.tar",
	} {
		if got := raw.text(text); got != want {
			t.Errorf("without redaction: %q", got)
		}
	}
}

// TestQuotedNames: a name in quotes has the placeholder of the whole name, with any escapes and marks in it, and even if it is a number or a word of lcache.
func TestQuotedNames(t *testing.T) {
	r := newRedactor()
	for _, name := range []string{"John Smith/zq Doe, Jane (MRN=773).jpg", "a \"b\"\nc.jpg", "4711", "train"} {
		r.string(name, aSample)
	}
	r.spaced = r.names.spacedNames()
	for text, want := range map[string]string{
		`open "John Smith/zq Doe, Jane (MRN=773).jpg": no such file or directory`: `open "dir-1/file-1.jpg": no such file or directory`,
		"open John Smith/zq Doe, Jane (MRN=773).jpg: no such file or directory":   "open dir-1/file-1.jpg: no such file or directory",
		`open "/data/John Smith/zq Doe, Jane (MRN=773).jpg": permission denied`:   `open "/dir-2/dir-1/file-1.jpg": permission denied`,
		`open "a \"b\"\nc.jpg": no such file or directory`:                        `open "file-2.jpg": no such file or directory`,
		`open "4711": no such file or directory; open "train": permission denied`: `open "file-3": no such file or directory; open "file-4": permission denied`,
		`a setting is "auto", and 4711 samples were read`:                         `a setting is "auto", and 4711 samples were read`,
	} {
		if got := r.text(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// TestStable: one name has one placeholder in all documents, whatever it names, and different names have different ones.
func TestStable(t *testing.T) {
	r := newRedactor()
	docs := []part{
		{name: "a", raw: []byte(`{"events":[{"text":"job zqrun came: /data/zqset/zqrun is read"}]}`), of: statusTable},
		{name: "b", raw: []byte(`{"jobs":[{"id":"zqrun","name":"zqset"},{"id":"other","name":"zqset"}]}`), of: statusTable},
	}
	b, err := r.bundle(docs)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b.Members[0].Data); !strings.Contains(got, `"job job-1 came: /dir-1/dataset-1/job-1 is read"`) {
		t.Errorf("the sentence is %s", got)
	}
	if got := string(compact(b.Members[1].Data)); got != `{"jobs":[{"id":"job-1","name":"dataset-1"},{"id":"job-2","name":"dataset-1"}]}`+"\n" {
		t.Errorf("the jobs are %s", got)
	}
}

// TestStacks: functions and waits stay, folders of the machine that compiled the program do not.
func TestStacks(t *testing.T) {
	in := "goroutine 7 [chan receive, 3 minutes]:\nlcache/server.(*conn).read(0xc000123, {0x19abb70?, 0x2?})\n\t/home/zqalice/src/zqwork/server/conn.go:202 +0x45\n" +
		"created by lcache/server.(*conn).serve in goroutine 65\n\tlcache/server/conn.go:87 +0x1e7\n\ngoroutine 8 [running zqlabel]:\npanic({\"zqsample\"})\n"
	got := newRedactor().stacks(in)
	want := "goroutine 7 [chan receive, 3 minutes]:\nlcache/server.(*conn).read(0xc000123, {0x19abb70?, 0x2?})\n\tconn.go:202 +0x45\n" +
		"created by lcache/server.(*conn).serve in goroutine 65\n\tlcache/server/conn.go:87 +0x1e7\n\n"
	if !strings.HasPrefix(got, want) || strings.Contains(got, "zq") {
		t.Errorf("got %s", got)
	}
}

// TestProfile: a real profile of this program stays a profile, without paths, labels and comments.
func TestProfile(t *testing.T) {
	var heap bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&heap, 0); err != nil {
		t.Fatal(err)
	}
	p, err := readProfile(heap.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	p.Mapping[0].File, p.Mapping[0].BuildID, p.Comments, p.DocURL = "/home/zqalice/lcache", "zqbuild", []string{"zqcomment"}, "http://zqhost/"
	p.Function[0].Filename = "/home/zqalice/src/main.go"
	p.Sample[0].Label = map[string][]string{"zqkey": {"zqvalue"}}
	var marked bytes.Buffer
	if err := p.Write(&marked); err != nil {
		t.Fatal(err)
	}
	out, err := newRedactor().profile(marked.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	plain := unzipped(t, out)
	if i := bytes.Index(plain, []byte("zq")); i >= 0 {
		t.Errorf("a name is left: %q", plain[max(0, i-20):min(len(plain), i+20)])
	}
	again, err := readProfile(out)
	if err != nil || len(again.Sample) != len(p.Sample) || !slices.ContainsFunc(again.Function, func(f *profile.Function) bool { return strings.Contains(f.Name, "testing.") }) {
		t.Errorf("the profile is not the same: %v", err)
	}
}

func unzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// FuzzText: a marked name never survives in a sentence, whatever stands around it.
func FuzzText(f *testing.F) {
	f.Add("sample 17 (", "): no such file")
	f.Add(`open "a b/`, `": denied`)
	f.Add("s3://x/", "?y=1")
	f.Add("key=", ",z")
	f.Add("\"", "\\\"")
	f.Fuzz(func(t *testing.T, before, after string) {
		r := newRedactor()
		if got := r.text(before + "zqmarkqz" + after); strings.Contains(got, "zqmarkqz") && !strings.Contains(before+after, "zqmarkqz") {
			t.Errorf("%q%q: %q", before, after, got)
		}
	})
}

// TestVariablesLeftOut: the name of a variable that was left out may have the name of a dataset.
func TestVariablesLeftOut(t *testing.T) {
	r := &redactor{names: newNames(), ours: map[string]bool{}}
	got, err := r.document([]byte(`{"left_out": ["LCACHE_METRICS_TOKEN", "LCACHE_CLUSTER_KEY", "LCACHE_SOCKET_MONKEYS"]}`), processTable)
	if text := string(got); err != nil || strings.Contains(text, "MONKEYS") || !strings.Contains(text, "LCACHE_METRICS_TOKEN") || !strings.Contains(text, "LCACHE_CLUSTER_KEY") {
		t.Errorf("%s, %v", got, err)
	}
}
