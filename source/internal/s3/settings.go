package s3

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"lcache/internal/usage"
)

// Settings describe where and how a bucket is accessed. None is a secret: credentials come from the places where the
// AWS tools look. A cache stores its settings. Zero fields mean the defaults of the AWS tools.
type Settings struct {
	Endpoint      string `json:"endpoint_url,omitempty"` // of a service other than AWS, with its scheme; its buckets are addressed by path
	Region        string `json:"region,omitempty"`
	PathStyle     bool   `json:"path_style,omitempty"` // the bucket is in the path, not in the host name
	Unsigned      bool   `json:"unsigned,omitempty"`   // requests without credentials, for public buckets
	Profile       string `json:"profile,omitempty"`    // of the AWS configuration
	RequesterPays bool   `json:"requester_pays,omitempty"`
}

// Completed adds the endpoint from the environment if none was given, and checks the endpoint.
func (s Settings) Completed(environ func(string) string) (Settings, error) {
	from := "--s3-endpoint-url"
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if ignore, _ := strconv.ParseBool(environ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")); s.Endpoint == "" && !ignore && environ(name) != "" {
			s.Endpoint, from = environ(name), name
		}
	}
	if s.Endpoint == "" {
		return s, nil
	}
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return s, usage.Errorf("%s: it must be like https://minio.example:9000", from)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return s, usage.Errorf("%s: it must have no user, password or query: give credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile", from)
	}
	s.Endpoint = plainEndpoint(u)
	return s, nil
}

// IsAt reports whether a stored endpoint is that of the settings. It may be written differently, because older
// programs stored the user's text.
func (s Settings) IsAt(kept string) bool {
	if u, err := url.Parse(kept); err == nil && u.Host != "" {
		kept = plainEndpoint(u)
	}
	return s.Endpoint == kept
}

// plainEndpoint returns the standard form of an endpoint: host in lower case, no default port, and no trailing slash.
func plainEndpoint(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if port := u.Port(); port == "" || port == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host + strings.TrimRight(u.EscapedPath(), "/")
}

// where describes the bucket's location for people.
func (s Settings) where() string {
	if s.Endpoint != "" {
		return s.Endpoint
	}
	return "AWS"
}

// Split splits a source s3://bucket/prefix, with or without a trailing slash. A prefix is "", or ends in a slash.
func Split(src string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(src, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	switch {
	case !ok, bucket == "":
		return "", "", fmt.Errorf("it has no bucket: give s3://BUCKET/PREFIX/")
	case strings.ContainsAny(bucket, "@:?#% "):
		return "", "", fmt.Errorf("its bucket has a character that no bucket's name has: give s3://BUCKET/PREFIX/, and credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile")
	case strings.ContainsRune(prefix, '?'):
		return "", "", fmt.Errorf("it has a query: give s3://BUCKET/PREFIX/")
	}
	if prefix = strings.TrimRight(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return bucket, prefix, nil
}
