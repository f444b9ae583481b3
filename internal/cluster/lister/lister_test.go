package lister

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/cluster"
	"lcache/internal/peer"
	"lcache/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }

// machines are Listers of n members that know each other.
func machines(t *testing.T, n int) (all []*Lister) {
	t.Helper()
	where := cluster.Where{}
	for i := range n {
		m, err := cluster.Start(t.Context(), cluster.Options{Where: where, Listen: "127.0.0.1:0", Host: fmt.Sprint("gpu-", i)})
		if err != nil {
			t.Fatal(err)
		}
		server := peer.Serve(m.Data(), peer.ServerOptions{})
		l := &Lister{Member: m, Server: server, Client: peer.ClientOptions{ID: m.Name()}, Expect: n, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
		t.Cleanup(func() {
			l.Close()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			server.Close()
		})
		if i == 0 {
			_, port, _ := net.SplitHostPort(m.View().Listen)
			var gossip int
			fmt.Sscan(port, &gossip)
			if where, err = cluster.ParseWhere(fmt.Sprintf("127.0.0.1:%d", gossip-1)); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, l)
	}
	return all
}

func anySize(uint64) error { return nil }

// TestOneLists: of three machines one lists, the others get its manifest, and a fourth request later too. The one that ends waits until all have it.
func TestOneLists(t *testing.T) {
	all, key := machines(t, 3), KeyOf("s3://bucket/train/ flat")
	manifest := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // several pieces
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	listed, waited := 0, 0
	var running sync.WaitGroup
	for i, l := range all {
		running.Go(func() {
			path := filepath.Join(t.TempDir(), fmt.Sprint("manifest", i))
			fetched, err := l.Await(ctx, key, path, anySize, func(host string, _ int64) {
				mu.Lock()
				defer mu.Unlock()
				waited++
			})
			if err != nil {
				t.Error(err)
				return
			}
			if !fetched {
				mu.Lock()
				listed++
				mu.Unlock()
				if err := os.WriteFile(path, manifest, 0o600); err != nil {
					t.Error(err)
				}
				if err := l.Listed(key, path); err != nil {
					t.Error(err)
				}
				l.HandOver(ctx)
				if l.isWanted() {
					t.Error("the lister ends although others wait for it")
				}
				return
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, manifest) {
				t.Errorf("machine %d got %d bytes: %v", i, len(got), err)
			}
			if err := l.Listed(key, path); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if listed != 1 {
		t.Errorf("%d machines listed the source", listed)
	}
	if waited == 0 {
		t.Error("no machine reported that it waits for the lister")
	}
}

// TestYield: of several listings the oldest gives way first, and last those that another machine wants.
func TestYield(t *testing.T) {
	all := machines(t, 2)
	path := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(path, []byte("a manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := []Key{KeyOf("wanted"), KeyOf("old"), KeyOf("new")}
	for _, k := range keys {
		if err := all[0].Listed(k, path); err != nil {
			t.Fatal(err)
		}
	}
	if err := all[1].offer(keys[0], flagWants, 0); err != nil {
		t.Fatal(err)
	}
	for v := (*cluster.View)(nil); !all[0].isWanted(); {
		v = all[0].Member.Newer(t.Context(), v)
	}
	for _, next := range []Key{keys[1], keys[2], keys[0]} {
		if isThere := all[0].held[next] != nil; !isThere || !all[0].Yield() || all[0].held[next] != nil {
			t.Errorf("%x did not give way in its turn", next.dataset())
		}
	}
	if all[0].Yield() {
		t.Error("a listing gives way, and there is none")
	}
}

// TestOtherListing: a listing with other properties is another one.
func TestOtherListing(t *testing.T) {
	all := machines(t, 2)
	for i, l := range all {
		if fetched, err := l.Await(t.Context(), KeyOf(fmt.Sprint(i)), filepath.Join(t.TempDir(), "m"), anySize, func(string, int64) {}); fetched || err != nil {
			t.Errorf("machine %d: fetched %v, %v", i, fetched, err)
		}
		l.Withdraw(KeyOf(fmt.Sprint(i)))
	}
}

// TestListingWithoutRoom: a manifest for which the disk has no room is not received, and the machine lists the source itself.
func TestListingWithoutRoom(t *testing.T) {
	all, key := machines(t, 2), KeyOf("s3://bucket/large/")
	all[1].Expect = 1
	path := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Listed(key, path); err != nil {
		t.Fatal(err)
	}
	var asked []uint64
	fits := func(bytes uint64) error { asked = append(asked, bytes); return errors.New("no room") }
	to := filepath.Join(t.TempDir(), "received")
	if fetched, err := all[1].Await(t.Context(), key, to, fits, func(string, int64) {}); fetched || err != nil {
		t.Errorf("fetched: %v, %v", fetched, err)
	}
	if !slices.Equal(asked, []uint64{3 << 20}) {
		t.Errorf("asked for room for %v bytes", asked)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("a part of the manifest is left: %v", err)
	}
}
