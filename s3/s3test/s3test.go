// Package s3test starts real servers for tests: a gateway that speaks S3 over a folder and checks signatures, and a proxy that makes a bad network.
// Both listen on loopback. Their programs are built once, into a folder outside of the source tree; a test that can't have them is skipped, or
// fails if LCACHE_TEST_TOOLS=need is set, as make test does.
package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sys/unix"
)

// What the gateway was started with. The region is not the default one.
const (
	Access = "LCACHETESTACCESSKEY"
	Secret = "lcache-test-secret-key-that-nothing-prints"
	Region = "eu-test-7"
	Bucket = "training"
)

// tools are the programs, and the modules that they are built from.
var tools = map[string]string{
	"versitygw":        "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
	"toxiproxy-server": "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0",
}

// Tools is the folder of the programs.
func Tools() string {
	root, err := os.UserCacheDir()
	if err != nil {
		root = os.TempDir()
	}
	return filepath.Join(root, "lcache-test-tools")
}

// Build builds a program if it is not there, and returns its path. Processes that want the same one wait for each other.
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
	cmd.Dir, cmd.Env = into, append(os.Environ(), "GOBIN="+into, "GOFLAGS=", "CGO_ENABLED=0")
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
		t.Fatalf("%s can't be had: %v", name, err)
	}
	if err != nil {
		t.Skipf("%s can't be had: %v", name, err)
	}
	return path
}

// Environment gives the test's process the gateway's credentials, and nothing else of AWS. Nothing leaves this machine.
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

// Gateway is a running gateway with one bucket. Objects are written through Client: what is put into Dir has no version.
type Gateway struct {
	URL    string
	Client *s3.Client
	Dir    string
}

// Start starts a gateway, which ends with the test.
func Start(t testing.TB) *Gateway {
	t.Helper()
	path := program(t, "versitygw")
	Environment(t)
	g := &Gateway{Dir: t.TempDir()}
	address := serve(t, func(address string) *exec.Cmd {
		cmd := exec.Command(path, "--access", Access, "--secret", Secret, "--region", Region, "--port", address, "--keep-alive", "--quiet", "posix", "--sidecar", t.TempDir(), g.Dir)
		return cmd
	})
	g.URL = "http://" + address
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

// Fill writes many objects, several at once.
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

// serve starts a server at a free address of loopback and returns that when it answers. Another process may take the address in between: then another
// one is tried.
func serve(t testing.TB, command func(address string) *exec.Cmd) string {
	t.Helper()
	var said bytes.Buffer
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		cmd := command(address)
		said.Reset()
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		stop := func() { cmd.Process.Kill(); <-ended }
		if answers(address, ended) {
			t.Cleanup(stop)
			return address
		}
		stop()
	}
	t.Fatalf("a server does not start: %s", said.String())
	return ""
}

// answers waits until a server accepts connections: false if it ends before, or after a minute.
func answers(address string, ended <-chan struct{}) bool {
	for range 6000 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			select {
			case <-ended: // it was another process's
				return false
			default:
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}
