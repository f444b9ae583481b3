package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/cluster"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// machines starts servers of one dataset as machines of a cluster, with one rank of a job each. Samples travel over real connections, which are encrypted if
// the options say so.
func machines(t *testing.T, n int, more func(machine int, o *cluster.Options), changes ...func(*Options)) (servers []*local, files map[sample.Index][]byte) {
	t.Helper()
	o, _ := options(t, "true")
	o.Ingest.Job = schedule.Job{Recipe: "torch.distributed_sampler", Seed: "9", Epochs: 3, BatchSize: 4, World: n, DropLast: true}
	files = map[sample.Index][]byte{}
	for i := range 300 {
		path := filepath.Join(o.Sources[0].Path, fmt.Sprint("class", i%2), fmt.Sprintf("more-%03d", i))
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 2000+i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o.JobGiven, o.RanksGiven = true, true
	for _, change := range changes {
		change(&o)
	}
	var starting sync.WaitGroup
	servers = make([]*local, n)
	where := cluster.Where{}
	for i := range n {
		if o.RanksGiven {
			o.Ingest.Job.Ranks = []int{i}
		}
		serve := cacheOf(t, o)
		serve.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		serve.Cluster = &ClusterOptions{Options: cluster.Options{Where: where, Listen: "127.0.0.1:0", Expect: n, Host: fmt.Sprint("gpu-0", i), Logger: serve.Logger}}
		more(i, &serve.Cluster.Options)
		m, err := join(t.Context(), serve.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.leave(); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			_, port, _ := net.SplitHostPort(m.View().Listen)
			var gossip int
			fmt.Sscan(port, &gossip)
			if where, err = cluster.ParseWhere(fmt.Sprintf("127.0.0.1:%d", gossip-1)); err != nil {
				t.Fatal(err)
			}
		}
		serve.member = m
		starting.Go(func() {
			var err error
			if servers[i], err = start(t.Context(), serve); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), StopTime)
				defer cancel()
				if err := errors.Join(servers[i].end(ctx), servers[i].engine.Close(ctx)); err != nil {
					t.Error(err)
				}
			})
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	all, err := filepath.Glob(filepath.Join(o.Sources[0].Path, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	for i, path := range all {
		if files[sample.Index(i)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return servers, files
}

// readRank reads an epoch of a rank, and compares each sample with its file. It returns the number of samples.
func readRank(l *local, epoch, rank int, files map[sample.Index][]byte) (n int, err error) {
	c, _, err := l.engine.Attach(os.Getpid(), "")
	if err != nil {
		return 0, err
	}
	defer c.Disconnected()
	memory := l.engine.MemoryFile()
	for b := 0; ; b++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		batch, err := c.Chunk(ctx, epoch, rank, b)
		cancel()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("epoch %d rank %d batch %d: %w", epoch, rank, b, err)
		}
		for i, index := range batch.Indices {
			got := make([]byte, batch.Lengths[i])
			if _, err := memory.ReadAt(got, int64(batch.Offsets[i])); err != nil {
				return n, err
			}
			if !bytes.Equal(got, files[sample.Index(index)]) {
				return n, fmt.Errorf("epoch %d rank %d: sample %d has wrong bytes", epoch, rank, index)
			}
			n++
		}
		c.Release(batch.Lease)
	}
}

// TestSamplesTravel: three servers read the source once, together, and send each other what they keep, with encryption and without. The status says how much.
func TestSamplesTravel(t *testing.T) {
	for name, key := range map[string]*cluster.Key{"without encryption": nil, "with TLS": testKey(t)} {
		t.Run(name, func(t *testing.T) {
			servers, files := machines(t, 3, func(_ int, o *cluster.Options) { o.Key = key })
			var source, in, out int64
			var dataset int64
			for epoch := range 2 {
				var reading sync.WaitGroup
				for rank, l := range servers {
					reading.Go(func() {
						if n, err := readRank(l, epoch, rank, files); err != nil || n != len(files)/3 {
							t.Errorf("%d samples: %v", n, err)
						}
					})
				}
				reading.Wait()
			}
			for _, l := range servers {
				s := l.engine.Status()
				source += s.Totals.SourceBytes
				dataset = s.Jobs[0].DatasetBytes
				if s.Cluster.State != "ok" || len(s.Cluster.Peers) != 3 || s.Cluster.Peers[0].Copies != 3 || s.Cluster.CorruptSamples != 0 {
					t.Errorf("the cluster is %+v", s.Cluster)
				}
				for _, p := range s.Cluster.Peers {
					in, out = in+p.InBytes, out+p.OutBytes
					if p.LateSamples != 0 {
						t.Errorf("late samples of %+v", p)
					}
				}
			}
			if source > dataset || source < dataset*9/10 {
				t.Errorf("%d bytes were read from the source, of %d", source, dataset)
			}
			if in == 0 || in != out {
				t.Errorf("%d bytes came from peers, and %d were sent", in, out)
			}
		})
	}
}

// testKey returns a new key.
func testKey(t *testing.T) *cluster.Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(cluster.NewKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := cluster.ReadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestListingsGiveWay: a process offers 10 things to the cluster at most. Listings give way to caches, the oldest first.
func TestListingsGiveWay(t *testing.T) {
	servers, _ := machines(t, 1, func(int, *cluster.Options) {})
	of := servers[0].link.of
	path := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(path, []byte("a manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := of.lister.Listed(fmt.Sprint("source ", i), path); err != nil {
			t.Fatalf("listing %d: %v", i, err)
		}
	}
	for i := range byte(9) {
		if err := of.Offer(cluster.Offer{Dataset: cluster.DatasetKey{i}, Weight: 1}); err != nil {
			t.Errorf("cache %d besides the first: %v", i+1, err)
		}
	}
	if err := of.Offer(cluster.Offer{Dataset: cluster.DatasetKey{99}, Weight: 1}); err == nil || !strings.Contains(err.Error(), "10 caches and names") {
		t.Errorf("an eleventh cache: %v", err)
	}
	if err := of.lister.Listed("one more source", path); err == nil {
		t.Error("a listing takes the place of a cache")
	}
}

// TestMachineThatDoesNotDecide: an ingest does not wait for ever for a machine that never says what it keeps. It says which one it is.
func TestMachineThatDoesNotDecide(t *testing.T) {
	servers, _ := machines(t, 1, func(int, *cluster.Options) {})
	var log bytes.Buffer
	of := servers[0].link.of
	l := of.link(servers[0].engine.Share(), "", slog.New(slog.NewTextHandler(&log, nil))) // it follows no rosters
	defer l.client.Close()
	_, port, _ := net.SplitHostPort(of.View().Listen)
	var gossip int
	fmt.Sscan(port, &gossip)
	where, err := cluster.ParseWhere(fmt.Sprintf("127.0.0.1:%d", gossip-1))
	if err != nil {
		t.Fatal(err)
	}
	m, err := join(t.Context(), &ClusterOptions{Options: cluster.Options{Where: where, Listen: "127.0.0.1:0", Host: "gpu-mute"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.leave(); err != nil {
			t.Error(err)
		}
	}()
	if err := m.Offer(cluster.Offer{Dataset: l.key, Cache: cluster.CacheID{1}, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for v := of.View(); l.machines() != 2; {
		if v = of.Newer(ctx, v); v == nil {
			t.Fatal("the other machine does not come into the roster")
		}
	}
	if got := l.undecided(); len(got) != 1 || !strings.HasPrefix(got[0], "gpu-mute (127.0.0.1:") {
		t.Errorf("undecided: %q", got)
	}
	if err := l.awaitRoster(t.Context(), time.Millisecond); err != nil || !strings.Contains(log.String(), "gpu-mute") {
		t.Errorf("%v, and the log says %q", err, log.String())
	}
}

// TestSecondCacheOfADataset: a second cache of a dataset in one process takes no part in the cluster. It keeps its samples for itself, and the others don't
// learn of it.
func TestSecondCacheOfADataset(t *testing.T) {
	servers, files := machines(t, 1, func(int, *cluster.Options) {})
	of, share := servers[0].link.of, servers[0].engine.Share()
	share.Cache[0]++
	second := of.link(share, "", discard)
	err := second.begin(servers[0].engine.Home())
	defer second.end()
	if err == nil {
		t.Error("the second cache takes part in the cluster")
	}
	if s := second.status(); s.State != string(cluster.Alone) || s.Roster != "" || len(s.Peers) != 0 {
		t.Errorf("the second cache's cluster is %+v", s)
	}
	for index := range files {
		if _, asks := second.Holder(index, 0); asks || !second.Keeps(index) {
			t.Fatalf("sample %d: it is kept: %v, another machine is asked: %v", index, second.Keeps(index), asks)
		}
	}
	if peers := of.Newer(t.Context(), nil).Datasets[second.key].Peers; len(peers) != 1 {
		t.Errorf("the cluster has %d caches: %+v", len(peers), peers)
	}
}
