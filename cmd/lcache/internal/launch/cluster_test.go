package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/cmd/lcache/internal/attach"
	"lcache/engine"
	"lcache/internal/cluster"
	"lcache/internal/errcode"
	"lcache/internal/serve/status"
)

// cacheOf makes a cache of the source of a run, and returns the options of its server.
func cacheOf(t *testing.T, o Options) ServeOptions {
	t.Helper()
	o.Roots = []string{t.TempDir()}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(o.Roots[0], "data-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	return ServeOptions{Engine: engine.Options{Dirs: dirs, IO: o.Engine.IO}, Registry: o.Registry, Version: "test"}
}

// clusterParts are what a stack of a goroutine of a cluster names: this process as a member, gossip, samples between machines, and what carries them.
var clusterParts = []string{"lcache/internal/cluster.", "lcache/internal/cluster/", "hashicorp/memberlist.", "lcache/internal/peer.", "google.golang.org/grpc"}

// clusterGoroutines counts the goroutines of a cluster, by their part.
func clusterGoroutines() map[string]int {
	b := make([]byte, 4<<20)
	of := map[string]int{}
	for stack := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		for _, part := range clusterParts {
			if strings.Contains(stack, part) {
				of[part]++
			}
		}
	}
	return of
}

// internetSockets counts the sockets of this process that reach other machines. Clients of this machine use Unix sockets.
func internetSockets(t *testing.T) (n int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err == nil && (domain == unix.AF_INET || domain == unix.AF_INET6) {
			n++
		}
	}
	return n
}

// TestOneMachinePaysNothing: a server that is in no cluster starts nothing of one, and opens no socket for other machines. With a cluster the same counts are
// above 0, which shows that they count.
func TestOneMachinePaysNothing(t *testing.T) {
	for end := time.Now().Add(time.Minute); len(clusterGoroutines()) > 0; time.Sleep(10 * time.Millisecond) { // of the tests before: memberlist ends some late
		if time.Now().After(end) {
			t.Fatalf("goroutines of the tests before: %v", clusterGoroutines())
		}
	}
	o, _ := options(t, "true")
	serve := cacheOf(t, o)
	before := internetSockets(t)
	for _, options := range []*ClusterOptions{nil, {Options: cluster.Options{Listen: "127.0.0.1:0"}}} {
		serve.Cluster = options
		ctx, cancel := context.WithCancel(t.Context())
		err := Serve(ctx, serve, func(s Served) error {
			defer cancel()
			switch of, sockets := clusterGoroutines(), internetSockets(t)-before; {
			case options == nil && (len(of) > 0 || sockets != 0):
				t.Errorf("without a cluster there are %d sockets, and goroutines of it: %v", sockets, of)
			case options != nil && (of["lcache/internal/cluster."] == 0 || of["hashicorp/memberlist."] == 0 || of["lcache/internal/peer."] == 0 || of["google.golang.org/grpc"] == 0 || sockets < 3):
				t.Errorf("with a cluster only these are counted: %d sockets, goroutines %v", sockets, of) // gossip by TCP and UDP, and samples
			}
			if isOff := s.Status.Cluster.State == status.ClusterOff; isOff != (options == nil) {
				t.Errorf("options of a cluster %+v: state %q", options, s.Status.Cluster.State)
			}
			return nil
		})
		cancel()
		if err != nil {
			t.Error(err)
		}
	}
}

// awaitCluster asks a server until it sees its cluster as it should be.
func awaitCluster(socket, state string, peers int) (c status.Cluster, err error) {
	client, err := attach.Dial(socket, "test")
	if err != nil {
		return c, err
	}
	defer client.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, d, err := client.Status()
		if c = d.Cluster; err != nil || c.State == state && len(c.Peers) == peers {
			return c, err
		}
		if time.Now().After(end) {
			return c, fmt.Errorf("after a minute the cluster is not %s with %d peers: %+v", state, peers, c)
		}
	}
}

// TestServersOfTwoMachines: two servers with caches of one source make one roster, and one that ends is missed.
func TestServersOfTwoMachines(t *testing.T) {
	o, _ := options(t, "true")
	a, b := cacheOf(t, o), cacheOf(t, o)
	a.Cluster = &ClusterOptions{Options: cluster.Options{Listen: "127.0.0.1:0", Expect: 2, Host: "gpu-01"}}
	err := Serve(t.Context(), a, func(s Served) error {
		host, port, _ := net.SplitHostPort(s.Status.Cluster.Listen)
		var n int
		fmt.Sscan(port, &n)
		where, err := cluster.ParseWhere(fmt.Sprintf("%s:%d", host, n-1))
		if err != nil {
			return err
		}
		b.Cluster = &ClusterOptions{Options: cluster.Options{Where: where, Listen: "127.0.0.1:0", Expect: 2, Host: "gpu-02"}}
		ctx, end := context.WithCancel(t.Context())
		if err := Serve(ctx, b, func(other Served) error {
			defer end()
			ours, err := awaitCluster(s.Socket, "ok", 2)
			if err != nil {
				return err
			}
			theirs, err := awaitCluster(other.Socket, "ok", 2)
			if err == nil && (ours.Roster != theirs.Roster || ours.Roster == "" || ours.Peers[0].ID != theirs.Peers[1].ID || theirs.Peers[0].Host != "gpu-02" || ours.Peers[1].RoomShare != 1) {
				t.Errorf("one sees %+v, the other %+v", ours, theirs)
			}
			return err
		}); err != nil {
			return err
		}
		c, err := awaitCluster(s.Socket, "degraded", 2)
		if err == nil && (c.Peers[0].State != "ok" || c.Peers[1].State != "lost" || !c.Peers[1].InRoster) {
			t.Errorf("after its end: %+v", c.Peers)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
}

// errEnough ends a server of a test.
var errEnough = errors.New("the test is over")

// TestAttachOutsideTheCluster: a run that asks for a cluster does not use a running server that is in none, or in another one.
func TestAttachOutsideTheCluster(t *testing.T) {
	o, _ := options(t, "true")
	serve := cacheOf(t, o)
	o.Roots = serve.Engine.Dirs
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(cluster.NewKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	secret, err := cluster.ReadKey(key)
	if err != nil {
		t.Fatal(err)
	}
	plain, keyed := &ClusterOptions{Options: cluster.Options{Listen: "127.0.0.1:0"}}, &ClusterOptions{Options: cluster.Options{Listen: "127.0.0.1:0", Key: secret}}
	for _, test := range []struct {
		server, run *ClusterOptions
		want        string // in the error; "": none
	}{
		{nil, nil, ""},
		{keyed, keyed, ""},
		{nil, plain, "serves this cache without a cluster, and --cluster asks for one: stop it with lcache stop"},
		{plain, keyed, "in a cluster with another key"},
	} {
		serve.Cluster, o.Cluster = test.server, test.run
		err := Serve(t.Context(), serve, func(Served) error {
			_, err := Run(t.Context(), o)
			if code, _ := errcode.Of(err); (err == nil) != (test.want == "") || err != nil && (code != errcode.OtherCluster || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			return errEnough
		})
		if !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
	}
}
