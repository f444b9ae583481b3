package bundle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// ofOthers are words in the errors of Go's library, of TLS and of object stores.
const ofOthers = `EOF unexpected invalid character looking for beginning of value after top-level after object key in string literal cannot unmarshal into Go struct field context deadline
exceeded canceled dial tcp udp unix lookup no such host i/o timeout connection refused reset by peer broken pipe use of closed network connection server misbehaving x509 certificate
signed by unknown authority has expired or is not yet valid tls handshake failure bad protocol version not supported remote error local error read write open stat mkdir rename remove
statfs fallocate fsync lstat readlink unlink too many open files mmap mlock io_uring_setup io_uring_enter io_uring_register fcntl ioctl accept bind listen connect
NoSuchKey NoSuchBucket AccessDenied SlowDown InternalError ServiceUnavailable RequestTimeout InvalidRange PermanentRedirect SignatureDoesNotMatch InvalidAccessKeyId ExpiredToken
https http GET HEAD PUT POST StatusCode RequestID HostID operation error response api error exceeded maximum number of attempts retry quota gzip tar zlib header checksum flate corrupt input before offset
Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat Sun I/O panic goroutine running runtime memory address nil pointer dereference index out of range slice bounds`

var (
	verb     = regexp.MustCompile(`%[-+# 0]*[\d*]*(\.[\d*]+)?[a-zA-Z%]`)
	wordForm = regexp.MustCompile(`^(-{0,2}[A-Za-z]([A-Za-z0-9_.'’-]{0,30}[A-Za-z0-9])?|/(proc|sys)(/[a-z0-9_]+)*|[a-zA-Z]{1,12}/[a-zA-Z])$`)
)

// wordsIn adds the words of a text.
func wordsIn(text string, to map[string]bool) {
	for word := range strings.FieldsFuncSeq(verb.ReplaceAllString(text, " \x00 "), func(c rune) bool { return strings.ContainsRune(" \t\n\",;:()[]{}<>|=·→+*&`“”\\", c) }) {
		word = strings.TrimSuffix(strings.Trim(word, "'.!?…"), "'s")
		if wordForm.MatchString(word) {
			to[word] = true
		}
	}
}

// wordsOfSource returns the words in the string literals and tags of all packages, without tests.
func wordsOfSource(t *testing.T) map[string]bool {
	words := map[string]bool{}
	wordsIn(ofOthers, words)
	for e := syscall.Errno(1); e < 134; e++ {
		wordsIn(e.Error(), words)
	}
	err := filepath.WalkDir("../../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test") || d.Name() == "demo"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					if text, err := strconv.Unquote(n.Value); err == nil {
						wordsIn(text, words)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// TestVocabulary: words.txt has the words of lcache's messages. A new message may add some words without a change here: they are replaced in bundles until
// make docs writes the file again. The test fails when that is overdue.
func TestVocabulary(t *testing.T) {
	words := wordsOfSource(t)
	if *update {
		if err := os.WriteFile("words.txt", []byte(strings.Join(slices.Sorted(maps.Keys(words)), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var missing []string
	for word := range words {
		if !vocabulary()[word] {
			missing = append(missing, word)
		}
	}
	if len(missing) > len(words)/25 {
		t.Errorf("words.txt lacks %d of %d words: run make docs", len(missing), len(words))
	}
	for _, must := range []string{"bottleneck", "listening", "--cache", "reads/s", "epochs_done", "directory", "refused"} {
		if !vocabulary()[must] {
			t.Errorf("words.txt lacks %q", must)
		}
	}
	for _, never := range []string{"n01440764", "/data/train", "alice", "imagenet/train"} {
		if vocabulary()[never] {
			t.Errorf("words.txt has %q, which is no word of a message", never)
		}
	}
}
