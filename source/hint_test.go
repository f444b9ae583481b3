package source

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type sized struct {
	name string
	size uint32
}

func TestRecords(t *testing.T) {
	small := sized{"README.md", 2000}
	for _, c := range []struct {
		name  string
		files []sized
		want  string // beginning of the hint; "": there is none
	}{
		{"pictures", []sized{{"a/1.jpg", 100_000}, {"a/2.jpg", 300_000_000}}, ""},
		{"parquet", []sized{small, {"train-0.parquet", 1e6}, {"train-1.PARQUET", 1e6}}, `each sample is a whole .parquet file: give "parquet:/data/*.parquet" as the source`},
		{"a table among pictures", []sized{{"a.jpg", 1e6}, {"b.jpg", 1e6}, {"labels.parquet", 1e5}}, ""},
		{"datasets", []sized{{"data-00000-of-00001.arrow", 5e6}, {"dataset_info.json", 1000}, {"state.json", 1000}}, `each sample is a whole .arrow file: give "arrow:/data" as the source to read the records in them`},
		{"the cache of load_dataset", []sized{{"dataset_info.json", 1000}, {"imdb-train.arrow", 5e6}}, `each sample is a whole .arrow file: give "arrow:/data" as the source to read the records in them`},
		{"datasets with splits", []sized{{"dataset_dict.json", 1000}, {"test/data-0.arrow", 5e6}, {"test/state.json", 1000}, {"train/data-0.arrow", 5e6}},
			`each sample is a whole .arrow file: give one of its splits, such as "arrow:/data/test", as the source to read the records in them`},
		{"Arrow files alone", []sized{{"a/0.arrow", 5e6}, {"b/1.arrow", 5e6}}, `each sample is a whole .arrow file: give "arrow:/data/*/*.arrow" as the source`},
		{"tfrec", []sized{{"00-230.tfrec", 5e6}, {"01-230.tfrec", 5e6}}, `each sample is a whole .tfrec file: give "tfrecord:/data/*.tfrec" as the source`},
		{"ndjson", []sized{{"x.ndjson", 1e6}}, `each sample is a whole .ndjson file: give "jsonl:/data/*.ndjson" as the source`},
		{"tfrecord", []sized{{"x.tfrecord", 5e6}}, `each sample is a whole .tfrecord file: give "tfrecord:/data/*.tfrecord" as the source to read the records in them`},
		{"tfrecord shards", []sized{{"x.tfrecord-00000-of-00002", 5e6}, {"x.tfrecord-00001-of-00002", 5e6}}, `each sample is a whole .tfrecord file: give "tfrecord:/data/*.tfrecord*" as`},
		{"MDS", []sized{{"train/index.json", 1000}, {"train/shard.00000.mds", 6e7}}, "each sample is a whole shard of MDS"},
		{"litData", []sized{{"chunk-0-0.bin", 6e6}, {"index.json", 1000}}, "each sample is a whole chunk of litData"},
		{"an index of something else", []sized{{"a.jpg", 6e6}, {"index.json", 1000}}, ""},
		{"Megatron", []sized{{"text_document.bin", 1e6}, {"text_document.idx", 1e3}}, `each sample is a whole file, such as "text_document.bin", which has an .idx file with it: give "megatron:/data/text_document" as the source`},
		{"an idx of another file", []sized{{"a.bin", 1e6}, {"b.idx", 1e3}}, ""},
		{"small arrays", []sized{{"a.npy", 2e6}, {"b.npy", 2e6}}, ""},
		{"large arrays", []sized{{"a.npy", 100e6}, {"b.npy", 60e6}}, `each sample is a whole .npy file, of 80 MB on average: give "npy:/data/*.npy" as`},
		{"large archives", []sized{{"a.zip", 65e6}, {"b.zip", 65e6}}, `each sample is a whole .zip file, of 65 MB on average: give "zip:/data/*.zip" as`},
		{"one file", []sized{{"tokens.u16", 410e6}}, `the only sample is all of "tokens.u16", of 410 MB: lcache does not find the records in them; if they have many, name them in an index (ranges:), or write each as a file`},
		{"one file of tokens", []sized{{"tokens.bin", 410e6}}, `the only sample is all of "tokens.bin", of 410 MB: give "bin:/data/*.bin" with --record-bytes as the source`},
		{"JSON Lines", []sized{{"a/x.jsonl", 1e6}, {"b/y.jsonl", 1e6}}, `each sample is a whole .jsonl file: give "jsonl:/data/*/*.jsonl" as`},
		{"HDF5", []sized{{"x.h5", 1e9}}, `the only sample is all of "x.h5", of 1.0 GB: examples/index_hdf5.py writes an index`},
		{"FFCV", []sized{{"x.beton", 1e9}}, `each sample is a whole .beton file: lcache does not find the records in them`},
		{"one small file", []sized{{"tokens.bin", 41e6}}, ""},
		{"nothing", nil, ""},
	} {
		got, err := Records("/data", len(c.files), func(i int) (string, uint32, error) { return c.files[i].name, c.files[i].size, nil })
		if err != nil || !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q (%v), want %q", c.name, got, err, c.want)
		}
	}
}

// TestMeantShards: a source that is named like shards, and can't be opened or is empty, leads to advice with tar:.
func TestMeantShards(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ src, want string }{
		{dir + "/train-{000..005}.tar", `no such file or directory: did you mean "tar:` + dir + `/train-{000..005}.tar"?`},
		{dir + "/train.tgz", `did you mean "tar:` + dir + `/train.tgz"?`},
		{dir + "/train-*.jsonl", `did you mean "jsonl:` + dir + `/train-*.jsonl"?`},
		{dir + "/x.tfrecord-00000-of-00002", `did you mean "tfrecord:` + dir + `/x.tfrecord-00000-of-00002"?`},
		{dir + "/tokens.bin", `did you mean "bin:` + dir + `/tokens.bin" with --record-bytes?`},
		{dir + "/train", "check its path"},
		{"https://127.0.0.1:1/train-{000..005}.tar", `it is not a list: did you mean "tar:https://127.0.0.1:1/train-{000..005}.tar"?`},
		{"https://127.0.0.1:1/*.tar", "it is not a list: did you mean tar:…? Only braces name shards over a network"},
	} {
		s, err := Open(c.src, Options{})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.src, err, c.want)
		}
	}
}

// TestInsteadOfPictures: for a directory without a file of the wanted extensions, the advice names its shards or
// record files.
func TestInsteadOfPictures(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"0.tar", `: did you mean "tar:DIR/*.tar"?`},
		{"train/a/0.tgz", `: did you mean "tar:DIR/*/*/*.tgz"?`},
		{"train/0.parquet", `: did you mean "parquet:DIR/*/*.parquet"?`},
		{"train/0.txt", " that ends in .jpg"},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, c.file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, Options{Exts: []string{"jpg"}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.List(t.Context(), nil)
		if err == nil || !strings.HasSuffix(strings.ReplaceAll(err.Error(), dir, "DIR"), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMeantShardsOfABucket: a prefix is named like shards, and the bucket has no object below it.
func TestMeantShardsOfABucket(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>`)
	}))
	defer srv.Close()
	for src, want := range map[string]string{
		"s3://bucket/train-{000..005}.tar": `no samples: it holds no file: did you mean "tar:s3://bucket/train-{000..005}.tar"?`,
		"s3://bucket/x.tar":                `did you mean "tar:s3://bucket/x.tar"?`,
		"s3://bucket/*.tar":                "did you mean tar:…? Only braces name shards over a network",
		"s3://bucket/train/":               "no samples: it holds no file",
	} {
		s, err := Open(src, Options{Remote: Remote{S3: S3{Endpoint: srv.URL, Region: "here", Unsigned: true, PathStyle: true}}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.List(t.Context(), nil)
		if err == nil || !strings.HasSuffix(strings.TrimSuffix(err.Error(), ", as in train-{000..146}.tar"), want) {
			t.Errorf("%s: %v, want %q", src, err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
