// Package s3test starts real servers for tests: a gateway that serves a folder by S3 and checks signatures, and a
// proxy that simulates a bad network. Both listen on loopback. Their programs are built once, into a folder outside
// the source tree. If a program can't be built, the test is skipped; with LCACHE_TEST_TOOLS=need, which make test
// sets, it fails.
package s3test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sys/unix"

	"lcache/internal/testenv"
)

// Settings of the gateway. The region is not the default one.
const (
	Access = "LCACHETESTACCESSKEY"
	Secret = "lcache-test-secret-key-that-nothing-prints"
	Region = "eu-test-7"
	Bucket = "training"
)

// Token is a session token for servers that are not the gateway, which refuses all of them.
const Token = "lcache-test-session-token-that-nothing-prints"

// tools has the programs, with the module that each is built from.
var tools = map[string]string{
	"versitygw":        "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
	"toxiproxy-server": "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0",
}

// Tools returns the folder of the programs.
func Tools() string {
	root, err := os.UserCacheDir()
	if err != nil {
		root = os.TempDir()
	}
	return filepath.Join(root, "lcache-test-tools")
}

// Build builds a program if it does not exist, and returns its path. Processes that need the same program wait for
// each other.
func Build(name string) (path string, err error) {
	version := tools[name][strings.LastIndexByte(tools[name], '@')+1:]
	path = filepath.Join(Tools(), name+"-"+version)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(Tools(), 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(Tools(), "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	into, err := os.MkdirTemp(Tools(), "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(into)
	cmd := exec.Command("go", "install", tools[name])
	cmd.Dir, cmd.Env = into, append(os.Environ(), "GOBIN="+into, "GOFLAGS=-trimpath", "CGO_ENABLED=0") // as in the Makefile
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Errorf("go install %s: %w: %s", tools[name], err, lines[len(lines)-1])
	}
	built, err := filepath.Glob(filepath.Join(into, "*"))
	if err != nil || len(built) != 1 {
		return "", fmt.Errorf("go install %s made %q", tools[name], built)
	}
	return path, os.Rename(built[0], path)
}

// program returns the path of a program, or skips the test.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := Build(name)
	if err != nil && os.Getenv("LCACHE_TEST_TOOLS") == "need" {
		t.Fatalf("cannot build %s: %v", name, err)
	}
	if err != nil {
		t.Skipf("cannot build %s: %v", name, err)
	}
	return path
}

// Secrets are texts that must not appear in any file, name, message or answer.
var Secrets = []string{Access, Secret, Token}

// Environment sets the gateway's credentials in the test's environment, and removes all other AWS settings. Nothing
// leaves this machine.
func Environment(t testing.TB) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": Access, "AWS_SECRET_ACCESS_KEY": Secret,
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none} {
		t.Setenv(name, value)
	}
}

// Gateway is a running gateway with one bucket. Write objects through Client, because files that are written to Dir
// have no version.
type Gateway struct {
	URL    string
	Client *s3.Client
	Dir    string

	address string
	command func(address string) *exec.Cmd
	stop    func()
}

// Start starts a gateway that stops at the end of the test.
func Start(t testing.TB) *Gateway {
	t.Helper()
	path := program(t, "versitygw")
	Environment(t)
	g := &Gateway{Dir: testenv.SourceDir(t)}
	sidecar := testenv.SourceDir(t) // for the gateway's metadata of objects, which not every file system can store with the files
	g.command = func(address string) *exec.Cmd {
		cmd := exec.Command(path, "posix", g.Dir)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+Access, "ROOT_SECRET_KEY="+Secret, "VGW_REGION="+Region, "VGW_PORT="+address, "VGW_KEEP_ALIVE=true",
			"VGW_QUIET=true", "VGW_META_SIDECAR="+sidecar)
		return cmd
	}
	g.address, g.stop = serve(t, g.command)
	t.Cleanup(func() { g.stop() })
	g.URL = "http://" + g.address
	g.Client = s3.New(s3.Options{HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Region: Region, BaseEndpoint: aws.String(g.URL), UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider(Access, Secret, "")})
	if _, err := g.Client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(Bucket)}); err != nil {
		t.Fatalf("make a bucket: %v", err)
	}
	return g
}

// Put writes an object.
func (g *Gateway) Put(key string, data []byte) error {
	_, err := g.Client.PutObject(context.Background(), &s3.PutObjectInput{Bucket: aws.String(Bucket), Key: &key, Body: bytes.NewReader(data)})
	return err
}

// Remove removes an object.
func (g *Gateway) Remove(key string) error {
	_, err := g.Client.DeleteObject(context.Background(), &s3.DeleteObjectInput{Bucket: aws.String(Bucket), Key: &key})
	return err
}

// Fill writes many objects in parallel.
func (g *Gateway) Fill(t testing.TB, files map[string][]byte) {
	t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for key, data := range files {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := g.Put(key, data); err != nil {
				t.Errorf("put %q: %v", key, err)
			}
		})
	}
	wg.Wait()
}

// Proxy is a running toxiproxy between a test and a server.
type Proxy struct {
	URL  string // URL of the server through the proxy
	base string
}

// StartProxy starts a proxy in front of a server. It stops at the end of the test.
func StartProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	path := program(t, "toxiproxy-server")
	address := Serve(t, func(address string) *exec.Cmd {
		host, port, _ := net.SplitHostPort(address)
		cmd := exec.Command(path)
		cmd.Args = append(cmd.Args, "-host", host, "-port", port)
		cmd.Env = append(os.Environ(), "LOG_LEVEL=error")
		return cmd
	})
	p := &Proxy{base: "http://" + address}
	var made struct{ Listen string }
	p.post(t, "/proxies", map[string]any{"name": "server", "listen": "127.0.0.1:0", "upstream": strings.TrimPrefix(server, "http://")}, &made)
	p.URL = "http://" + made.Listen
	return p
}

// Add makes the network worse, with a toxic of a type and its attributes, for a share of the connections.
func (p *Proxy) Add(t testing.TB, toxic string, share float64, attributes map[string]any) {
	t.Helper()
	p.post(t, "/proxies/server/toxics", map[string]any{"type": toxic, "toxicity": share, "attributes": attributes}, nil)
}

// Enable opens or blocks the path to the server.
func (p *Proxy) Enable(t testing.TB, open bool) {
	t.Helper()
	p.post(t, "/proxies/server", map[string]any{"enabled": open}, nil)
}

func (p *Proxy) post(t testing.TB, path string, body, answer any) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(p.base+path, "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("the proxy answers %s to %s %s", resp.Status, path, b)
	}
	if answer != nil {
		if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
			t.Fatal(err)
		}
	}
}
