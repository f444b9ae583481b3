package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/bundle"
)

// bundleScript starts two servers over sources with marked names: one over files in a cluster, and one over a web server, whose command makes the bundles. A
// sample of each source can't be read, so that log messages and events have names, too.
const bundleScript = `set -e
mkdir -p "zqsource/zqclass one" zqsource/zqclasstwo
for i in 1 2 3 4; do head -c 3000 /dev/urandom > "zqsource/zqclass one/zqsample $i.jpg"; head -c 3000 /dev/urandom > zqsource/zqclasstwo/zqsample-$i.zqend; done
lcache cluster key > zqkeyfile
chmod 600 zqkeyfile
lcache ingest --quiet --no-prefill --source zqsource --cache zqcache
mkfifo ready
LCACHE_ON_ERROR=skip lcache serve --cache zqcache --cluster listen --cluster-key zqkeyfile --metrics 127.0.0.1:0 --metrics-token-file zqtokenfile > ready 2> serve.log &
server=$!
read line < ready
rm "zqsource/zqclass one/zqsample 1.jpg"
mv zqsource/zqclasstwo/zqsample-1.zqend zqsource/zqclasstwo/zqsample-9.zqend
unset LCACHE_METRICS_TOKEN
python -c '
import lcache
with lcache.connect("zqcache/lcache.sock") as job:
    print(len(job.get(range(8)).samples), "samples")'
export LCACHE_METRICS_TOKEN=zq-variable-token-0123456789
lcache run --source LIST --cache zqroot --log-format json --metrics 127.0.0.1:0 -- sh -c 'set -e
python -c "
import lcache
with lcache.connect() as job:
    try:
        job.get(range(4))
        raise SystemExit(9)
    except lcache.Error as e:
        print(e)
"
unset LCACHE_SOCKET
lcache doctor --bundle zqbundle.tar.gz && lcache doctor --bundle zqraw.tar.gz --no-redact && lcache doctor --bundle zqone.tar.gz --socket zqcache/lcache.sock --json' sh --zqsecretargument
kill $server
wait $server
lcache status --json || test $? = 1
echo servers have ended
`

// TestBundleHasNoNames: a bundle of real servers has no marked name and no credential in any byte, also in profiles. Without redaction it has the names, so that the
// test would see them, and still no credential.
func TestBundleHasNoNames(t *testing.T) {
	t.Parallel()
	list := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name := r.URL.Path; {
		case strings.HasSuffix(name, "LIST"):
			fmt.Fprint(w, list)
		case r.Method != http.MethodHead && strings.Contains(name, "zqweb-3"):
			http.Error(w, "zqanswer", http.StatusForbidden)
		default:
			http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), strings.NewReader(strings.Repeat(name, 100)))
		}
	}))
	defer srv.Close()
	for i := range 4 {
		list += fmt.Sprintf("zqwebclass/zqweb-%d.jpg\n", i)
	}
	s := newStage(t)
	const fileToken = "zq-file-token-0123456789abcdef"
	work := filepath.Join(filepath.Dir(s.root), "work")
	writeFile(t, filepath.Join(work, "zqtokenfile"), fileToken)
	if err := os.Chmod(filepath.Join(work, "zqtokenfile"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "USER=zquser", "LOGNAME=zqlogname")
	out, errs, err := s.shell(strings.ReplaceAll(bundleScript, "LIST", srv.URL+"/zqprefix/LIST"))
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	key, err := os.ReadFile(filepath.Join(work, "zqkeyfile"))
	if err != nil {
		t.Fatal(err)
	}
	credentials := []string{fileToken, "zq-variable-token-0123456789", strings.TrimSpace(string(key)), "zqsecretargument"}
	names := []string{"zqsource", "zqclass", "zqsample", "zqend", "zqkeyfile", "zqtokenfile", "zqcache", "zqroot", "zqprefix", "zqweb", "zquser", "zqlogname", "zqbundle"}
	if host, err := os.Hostname(); err == nil && len(host) > 6 {
		names = append(names, host)
	}
	redacted, raw := bundleText(t, filepath.Join(work, "zqbundle.tar.gz")), bundleText(t, filepath.Join(work, "zqraw.tar.gz"))
	one := bundleText(t, filepath.Join(work, "zqone.tar.gz"))
	for _, mark := range credentials {
		for _, text := range []string{redacted, raw, one, out, errs} {
			if i := strings.Index(text, mark); i >= 0 {
				t.Errorf("a credential is left: …%q", text[max(0, i-100):i+len(mark)])
			}
		}
	}
	for _, mark := range append(names, "zq") {
		for _, text := range []string{redacted, one} {
			if i := strings.Index(text, mark); i >= 0 {
				t.Errorf("%s is left: …%q", mark, text[max(0, i-200):min(len(text), i+40)])
			}
		}
	}
	for _, mark := range []string{"zqsource", "zqclass", "zqsample", "zqkeyfile", "zqcache", "zqroot", "zqprefix"} {
		if !strings.Contains(raw, mark) {
			t.Errorf("the bundle with names has no %s: the test can't see it leak", mark)
		}
	}
	for _, want := range []string{"server-1/log.jsonl", "server-2/log.jsonl", "server-2/goroutines.txt", "server-2/heap.pb.gz", "server-1/status-4.json", "(*conn).serve", "REDACTED: yes", `"kind": "started"`, `"command_arguments_left_out": 5`} {
		if !strings.Contains(redacted, want) {
			t.Errorf("the bundle has no %s", want)
		}
	}
	if !strings.Contains(raw, "REDACTED: no") || !strings.Contains(out, "NOT redacted") {
		t.Error("the bundle with names does not say so")
	}
	contents, wrote := strings.Index(out, "server-1/heap.pb.gz"), strings.Index(out, "wrote zqbundle.tar.gz")
	if contents < 0 || wrote < contents || strings.Contains(one, "server-2/") || !strings.Contains(out, `"redacted": true`) {
		t.Errorf("printed: %s\n%s\n%.1000s", out, errs, redacted)
	}
}

// bundleText returns the bytes of all members, as they are and decompressed.
func bundleText(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all bytes.Buffer
	if err := bundle.Read(f, func(m bundle.Member) error {
		fmt.Fprintf(&all, "\n%s\n", m.Name)
		if !strings.HasSuffix(m.Name, ".gz") {
			all.Write(m.Data)
			return nil
		}
		z, err := gzip.NewReader(bytes.NewReader(m.Data))
		if err == nil {
			_, err = io.Copy(&all, z)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestBundleWithoutServer: a bundle can be made and inspected where no server runs. An existing file stays.
func TestBundleWithoutServer(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	doctor := func(args ...string) (string, error) {
		cmd := s.lcache(append([]string{"doctor", "--no-device"}, args...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	if out, err := doctor("--bundle", "b.tar.gz"); err != nil || !strings.Contains(out, "machine.json") || !strings.Contains(out, "wrote b.tar.gz") {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := doctor("--bundle", "b.tar.gz"); err == nil || !strings.Contains(out, "--bundle b.tar.gz: it exists: give another name [LC014]") {
		t.Errorf("%v: %s", err, out)
	}
	out, err := doctor("--inspect", "b.tar.gz")
	if err != nil || !strings.Contains(out, "── machine.json") || !strings.Contains(out, "Servers that answered: 0.") || strings.Contains(out, filepath.Base(s.work)) {
		t.Errorf("%v: %s", err, out)
	}
	writeFile(t, filepath.Join(s.work, "other"), "hello")
	if err := syscall.Mkfifo(filepath.Join(s.work, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"--inspect", "pipe", "--inspect pipe: it is not a plain file"}, {"--bundle", "nowhere/b.tar.gz", "can't write in the folder nowhere"}, {"--bundle=", "--bundle needs the name of a file"},
		{"--inspect", "other", "this is not a bundle of lcache doctor"}, {"--inspect", "none", "no such file"}, {"--no-redact", "", "belongs to --bundle"}, {"--inspect", "x", "--bundle", "y", "not both"}} {
		args, want := c[:len(c)-1], c[len(c)-1]
		if args[len(args)-1] == "" {
			args = args[:1]
		}
		if out, err := doctor(args...); err == nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}
