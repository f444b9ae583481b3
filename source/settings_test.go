package source_test

import (
	"testing"

	"lcache/source"
)

// TestRemoteSettings: given settings override stored ones, including a switch that is given as off.
func TestRemoteSettings(t *testing.T) {
	kept := source.Remote{S3: source.S3{Endpoint: "http://here", Region: "r", PathStyle: true, Unsigned: true, RequesterPays: true}, OtherHosts: true, NoHedge: true}
	all := source.PathStyle | source.Unsigned | source.RequesterPays | source.OtherHosts | source.NoHedge
	off := kept
	off.S3, off.OtherHosts, off.NoHedge = source.S3{Endpoint: "http://here", Region: "r"}, false, false
	region := kept
	region.S3.Region = "other"
	signed := kept
	signed.S3.Unsigned = false
	const bucket = "s3://b/"
	for what, c := range map[string]struct {
		src         string
		given, want source.Remote
		err         string
	}{
		"nothing":          {bucket, source.Remote{}, kept, ""},
		"all off":          {bucket, source.Remote{Given: all}, off, ""},
		"one off":          {bucket, source.Remote{Given: source.Unsigned}, signed, ""},
		"a text":           {bucket, source.Remote{S3: source.S3{Region: "other"}}, region, ""},
		"the same place":   {"tar:" + bucket + "x.tar", source.Remote{S3: source.S3{Endpoint: "http://here/"}}, kept, ""},
		"another place":    {bucket, source.Remote{S3: source.S3{Endpoint: "http://there"}}, kept, "--s3-endpoint-url: the cache belongs to s3://b/ at http://here, not at http://there"},
		"a wrong endpoint": {bucket, source.Remote{S3: source.S3{Endpoint: "there"}}, kept, "--s3-endpoint-url: it must be like https://minio.example:9000"},
		"a directory":      {"/data", source.Remote{Given: source.NoHedge}, kept, "--s3-…, --http-allow-other-hosts and --source-hedge are for a source over a network, not for /data"},
		"the same port":    {bucket, source.Remote{S3: source.S3{Endpoint: "http://Here:80"}}, kept, ""},
		"another port":     {bucket, source.Remote{S3: source.S3{Endpoint: "http://here:81"}}, kept, "--s3-endpoint-url: the cache belongs to s3://b/ at http://here, not at http://here:81"},
	} {
		got, err := c.given.At(c.src, kept)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != c.err || err == nil && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %s", what, got, err, c.want, c.err)
		}
	}
}

// TestSameEndpoint: an endpoint is the same with its default port and without it, even if an older program stored the
// user's text.
func TestSameEndpoint(t *testing.T) {
	for _, c := range []struct {
		given, kept string
		same        bool
	}{
		{"https://minio", "https://minio:443", true},
		{"https://minio:443/", "https://minio", true},
		{"https://MINIO:443", "https://minio:443", true},
		{"https://minio:443", "https://minio:9000", false},
		{"https://minio", "http://minio", false},
		{"https://minio", "", false},
		{"http://minio:443", "http://minio", false},
	} {
		given := source.Remote{S3: source.S3{Endpoint: c.given}}
		if _, err := given.At("s3://b/", source.Remote{S3: source.S3{Endpoint: c.kept}}); (err == nil) != c.same {
			t.Errorf("%s and %s: %v, want the same: %t", c.given, c.kept, err, c.same)
		}
	}
}
