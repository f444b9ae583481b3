package bundle

import (
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
)

// names gives each name a placeholder, such as host-2. One name always has the same placeholder, whatever it names and wherever it stands, so that a reader
// of the bundle still sees which things are the same.
type names struct {
	placeholders map[string]string
	count        map[string]int // placeholders by kind
	inText       map[string]bool
}

func newNames() *names {
	return &names{placeholders: map[string]string{}, count: map[string]int{}, inText: map[string]bool{}}
}

// public are names that every machine has, or that lcache gives.
var public = []string{"", ".", "..", "root", "lcache", "localhost", "(none)", "default"}

// of returns the placeholder of a name. kind is what it names if it has no placeholder yet.
func (n *names) of(kind, name string) string {
	if slices.Contains(public, name) {
		return name
	}
	if n.placeholders[name] == "" {
		n.count[kind]++
		n.placeholders[name] = fmt.Sprintf("%s-%d", kind, n.count[kind])
	}
	return n.placeholders[name]
}

// person returns the placeholder of a name that is also replaced where it stands alone in a sentence, even if it is a word of our messages: of a dataset
// that is called train. Parts of paths are not: every folder called data would replace that word.
func (n *names) person(kind, name string) string {
	if !slices.Contains(public, name) && !isNumber(name) {
		n.inText[name] = true
	}
	return n.of(kind, name)
}

// standard are parts of paths that are the same on many machines, and so name nobody.
var standard = []string{"home", "tmp", "var", "usr", "local", "bin", "lib", "etc", "opt", "mnt", "media", "run", "user", "proc", "self", "fd", "dev", "shm", "sys", "fs",
	"cgroup", "user.slice", "system.slice", "init.scope", ".cache", "lcache.sock", "LOCK"}

// extensions are endings of files that are kept.
var extensions = []string{".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".tar", ".tgz", ".gz", ".zst", ".npy", ".npz", ".json", ".jsonl", ".csv", ".txt", ".cls",
	".wav", ".flac", ".mp3", ".mp4", ".avi", ".mkv", ".parquet", ".arrow", ".h5", ".hdf5", ".tfrecord", ".bin", ".pt", ".pth", ".dcm", ".nii", ".sock", ".log", ".py", ".sh", ".prom", ".pem"}

// path replaces each part of a path. The ending of a file stays if it is a usual one.
func (n *names) path(text string) string {
	parts := strings.Split(text, "/")
	for i, part := range parts {
		if slices.Contains(standard, part) {
			continue
		}
		kind := "dir"
		ending := ""
		if i == len(parts)-1 {
			kind = "file"
			if e := path.Ext(part); slices.Contains(extensions, strings.ToLower(e)) && len(e) < len(part) {
				part, ending = strings.TrimSuffix(part, e), e
			}
		}
		parts[i] = n.of(kind, part) + ending
	}
	return strings.Join(parts, "/")
}

var scheme = regexp.MustCompile(`^(?i:file|https?|s3)://`)

// source replaces the names in the location of a dataset: a path, an address, or either after a word like tar:. Credentials and queries are left out.
func (n *names) source(text string) string {
	if m := scheme.FindString(text); m != "" {
		return m + n.address(text[len(m):], strings.EqualFold(m, "s3://"))
	}
	if word, rest, found := strings.Cut(text, ":"); found && slices.Contains(sourceWords, word) {
		return word + ":" + n.source(rest)
	}
	if strings.Contains(text, "/") {
		return n.path(text)
	}
	return n.person("dataset", text)
}

// sourceWords stand before the colon of a source.
var sourceWords = []string{"tar", "file", "parquet", "arrow", "hdf5", "npy", "bin", "tfrecord", "megatron", "zip", "ranges", "jsonl"}

// address replaces the names in an address after its scheme.
func (n *names) address(text string, isBucket bool) string {
	host, rest, hasPath := strings.Cut(text, "/")
	if !hasPath {
		host, rest = cutAny(host, "?#")
	}
	if at := strings.LastIndex(host, "@"); at >= 0 {
		host = host[at+1:]
	}
	out := ""
	if isBucket {
		out = n.person("bucket", host)
	} else {
		out = n.host(host)
	}
	if hasPath {
		rest, _ = cutAny(rest, "?#")
		out += "/" + n.path(rest)
	}
	return out
}

// cutAny cuts a text at the first of some bytes.
func cutAny(text, bytes string) (before, after string) {
	if i := strings.IndexAny(text, bytes); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, ""
}

// host replaces the name or address of a machine. Its port stays, and so do addresses that mean this machine.
func (n *names) host(text string) string {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsLoopback() && !ip.IsUnspecified()) {
		host = n.person("host", host)
	}
	switch {
	case err != nil:
		return host
	case !isNumber(port):
		port = n.of("name", port)
	}
	return net.JoinHostPort(host, port)
}
