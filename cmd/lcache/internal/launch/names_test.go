package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/cluster"
)

// logged are log messages.
type logged struct {
	mu sync.Mutex // guards the field that follows
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) has(texts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range texts {
		if !strings.Contains(l.b.String(), text) {
			return false
		}
	}
	return true
}

// TestOneNameTwoDatasets: two machines have different sources with one name. Each says so with both fingerprints, and goes on alone.
func TestOneNameTwoDatasets(t *testing.T) {
	oa, _ := options(t, "true")
	ob, _ := options(t, "true")
	if err := os.WriteFile(filepath.Join(ob.Sources[0].Path, "class0", "more"), []byte("more"), 0o644); err != nil {
		t.Fatal(err)
	}
	a, b := cacheOf(t, oa), cacheOf(t, ob)
	var said [2]logged
	a.Logger, b.Logger = slog.New(slog.NewTextHandler(&said[0], nil)), slog.New(slog.NewTextHandler(&said[1], nil))
	a.Cluster = &ClusterOptions{Dataset: "train", Options: cluster.Options{Listen: "127.0.0.1:0", Host: "gpu-01", Logger: discard}}
	err := Serve(t.Context(), a, func(s Served) error {
		_, port, _ := net.SplitHostPort(s.Status.Cluster.Listen)
		var n int
		fmt.Sscan(port, &n)
		where, err := cluster.ParseWhere(fmt.Sprintf("127.0.0.1:%d", n-1))
		if err != nil {
			return err
		}
		b.Cluster = &ClusterOptions{Dataset: "train", Options: cluster.Options{Where: where, Listen: "127.0.0.1:0", Host: "gpu-02", Logger: discard}}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		return errors.Join(errEnough, Serve(ctx, b, func(other Served) error {
			defer end()
			ours, err := awaitCluster(s.Socket, "alone", 1)
			if err != nil {
				return err
			}
			theirs, err := awaitCluster(other.Socket, "alone", 1)
			if err != nil {
				return err
			}
			for until := time.Now().Add(20 * time.Second); len(ours.Others) == 0 || len(theirs.Others) == 0 || !said[0].has(theirs.Fingerprint) || !said[1].has(ours.Fingerprint); {
				if time.Now().After(until) {
					return fmt.Errorf("one sees %+v, the other %+v", ours, theirs)
				}
				if ours, err = awaitCluster(s.Socket, "alone", 1); err != nil {
					return err
				}
				if theirs, err = awaitCluster(other.Socket, "alone", 1); err != nil {
					return err
				}
			}
			if ours.Others[0].ID != theirs.Fingerprint || theirs.Others[0].ID != ours.Fingerprint || ours.Fingerprint == theirs.Fingerprint || ours.Others[0].Host != "gpu-02" || theirs.Dataset != "train" {
				t.Errorf("one sees %+v, the other %+v", ours, theirs)
			}
			for i := range said {
				if !said[i].has(ours.Fingerprint, theirs.Fingerprint, "another dataset") {
					t.Errorf("machine %d does not name both fingerprints", i)
				}
			}
			return nil
		}))
	})
	if !errors.Is(err, errEnough) || strings.Count(err.Error(), errEnough.Error()) != len(err.Error())/len(errEnough.Error()) {
		t.Fatal(err)
	}
}

// TestNames: each of several sources has a name of its own.
func TestNames(t *testing.T) {
	var none *ClusterOptions
	named := &ClusterOptions{Dataset: "pets"}
	for _, c := range []struct {
		o    *ClusterOptions
		s    Source
		want string
	}{{none, Source{Name: "val"}, ""}, {&ClusterOptions{}, Source{Name: "val"}, ""}, {named, Source{}, "pets"}, {named, Source{Name: "val"}, "pets/val"}} {
		if got := c.o.datasetName(c.s); got != c.want {
			t.Errorf("%+v of %+v: %q", c.s, c.o, got)
		}
	}
	for name, ok := range map[string]bool{"": true, "imagenet train": true, "a\x1bb": false, "a\nb": false, "\xff": false, strings.Repeat("a", 256): false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
