package engine

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"lcache/deliver"
	"lcache/ingest"
	"lcache/sample"
	"lcache/schedule"
)

// TestFollower tells who follows the order of a log.
func TestFollower(t *testing.T) {
	var f follower
	for i := range followsFrom {
		if f.follows(7) {
			t.Fatalf("a rank follows after %d samples", i)
		}
		f.list(7, 2+i/40)
	}
	if !f.follows(7) || f.follows(8) {
		t.Error("a rank does not follow the log that it is listed in the order of, or follows another one")
	}
	if f.list(7, 9); f.follows(7) {
		t.Error("a rank that has jumped follows still")
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		if f.list(7, r.IntN(10)); f.follows(7) {
			t.Fatal("a rank in another random order follows a log of 10 segments")
		}
	}
}

// Jobs in the order of the log that one of them owns take their samples from its window.
func TestJobsFollow(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.Patience = 10 * time.Second
	r := rand.New(rand.NewPCG(4, 4))
	const epochs = 4
	var orders [epochs][][]sample.Index
	readBytes := func(jobs ...string) uint64 {
		e := open(t, o)
		defer closeEngine(t, e)
		var seats []*seat
		for _, token := range jobs {
			s := d.join(t, e, token)
			defer s.leave()
			for epoch := range orders {
				if orders[epoch] == nil {
					if err := s.push(r, epoch, len(d.bytes)); err != nil {
						t.Fatal(err)
					}
					orders[epoch] = s.orders[epoch]
				} else if err := e.PushOf(s.number, schedule.Pusher{Pid: os.Getpid(), Session: s.c.Token}, epoch, 0, schedule.Cut(orders[epoch])); err != nil {
					t.Fatal(err)
				}
			}
			seats = append(seats, s)
		}
		var before uint64
		for epoch, order := range orders {
			for batch := range order {
				for _, s := range seats {
					b, err := s.c.ChunkAt(context.Background(), deliver.Position{Job: s.number, Epoch: epoch, Batch: batch})
					if err == nil {
						err = d.check(e, b)
						s.c.Release(b.Lease)
					}
					if err != nil {
						t.Fatalf("epoch %d batch %d: %v", epoch, batch, err)
					}
				}
			}
			if epoch == 0 { // it began over a log in another order
				waitFor(t, "the log is in the order of epoch 1", func() bool { // else a busy machine begins it by place, each job for itself
					e.mu.Lock()
					defer e.mu.Unlock()
					return e.cur != nil && e.cur.Epoch == 1
				})
				before = e.cache.Store.Stats().ReadBytes
			}
		}
		noSource(t, e)
		return e.cache.Store.Stats().ReadBytes - before
	}
	alone, all := readBytes("first"), readBytes("first", "second", "third")
	if all > alone*13/10 {
		t.Errorf("three jobs in the same order read %d bytes, one reads %d", all, alone)
	}
}
