package source

import "testing"

func TestTarPattern(t *testing.T) {
	for _, c := range []struct {
		src   string
		names []string
		want  string
	}{
		{"/data/shards", []string{"a-000.tar", "a-001.tar"}, "tar:/data/shards/*.tar"},
		{"/data", []string{"train/000.tar", "val/000.tar"}, "tar:/data/*/*.tar"},
		{"/data", []string{"000.tar.gz", "001.tar.gz"}, "tar:/data/*.tar.gz"},
		{"/data", []string{"000.tgz"}, "tar:/data/*.tgz"},
		{"s3://bucket/prefix/", []string{"000.tar"}, "tar:s3://bucket/prefix/000.tar"}, // shards over a network have no wildcards
		{"s3://bucket/", []string{"t/a-098.tar", "t/a-099.tar", "t/a-100.tar"}, "tar:s3://bucket/t/a-{098..100}.tar"},
		{"s3://bucket/p/", []string{"0.tar", "1.tar", "2.tar"}, "tar:s3://bucket/p/{0..2}.tar"},
		{"s3://bucket/p/", []string{"000.tar", "002.tar"}, ""},
		{"s3://bucket/p/", []string{"a.tar", "b.tar"}, ""},
		{"s3://bucket/p/", []string{"0.tar", "1.tar", "10.tar"}, ""},
		{"s3://bucket/p/", []string{"a{0.tar", "a{1.tar"}, ""},
		{"/data", []string{"000.json", "000.tar", "README.md", "001.tar"}, "tar:/data/*.tar"},
		{"s3://bucket/p/", []string{"0.json", "0.tar", "1.json", "1.tar"}, "tar:s3://bucket/p/{0..1}.tar"},
		{"/data", []string{"000.json", "000.tar", "README.md"}, ""},
		{"/data", []string{"README.md"}, ""},
		{"/data", []string{"000.tar", "more/001.tar"}, ""},
		{"/data", []string{"a.tar/0001.jpg"}, ""},
		{"/data", []string{"000.tar", "001.tar.gz"}, ""},
		{"/data [2]", []string{"000.tar"}, ""},
		{"tar:/data/*.tar", []string{"a.tar/x.tar"}, ""},
		{"https://host/list.txt", []string{"000.tar"}, ""},
		{"/data", nil, ""},
	} {
		got, err := TarPattern(c.src, len(c.names), func(i int) (string, error) { return c.names[i], nil })
		if got != c.want || err != nil {
			t.Errorf("%s with %q: %q (%v), want %q", c.src, c.names, got, err, c.want)
		}
	}
}
