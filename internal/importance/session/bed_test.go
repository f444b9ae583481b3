package session

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/memory"
	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/memquota"
	"lcache/internal/serve/schedule"
	"lcache/internal/testenv"
	"lcache/sample"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}))
}

const samples = 40

// bed is a Session over 40 samples, with a Host that only records its calls.
type bed struct {
	t *testing.T
	*Session
	o    Options
	high *memory.High

	mu        sync.Mutex
	published []string // "epoch/rank"
	changed   []int    // epochs that had another order before
	laidOut   []int
	wake      func() // nil: not called
}

func (b *bed) LaidOut() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.laidOut
}

func (b *bed) OrderChanged(epoch int, replaced bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if replaced {
		b.changed = append(b.changed, epoch)
	}
}

func (b *bed) OrderPublished(epoch, rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published = append(b.published, fmt.Sprintf("%d/%d", epoch, rank))
}

func (b *bed) Wake() {
	b.mu.Lock()
	wake := b.wake
	b.mu.Unlock()
	if wake != nil {
		wake()
	}
}

func (b *bed) Units(high *sample.Set, _ int, _ uint64) (units [][]sample.Index) {
	for i := range sample.Index(samples) {
		if !high.Has(i) {
			units = append(units, []sample.Index{i})
		}
	}
	return units
}

// newBed makes the inputs of a Session. change is called before it begins; it may be nil.
func newBed(t *testing.T, text string, change func(*bed)) *bed {
	t.Helper()
	b := &bed{t: t}
	var entries []sample.Entry
	for i := range samples {
		entries = append(entries, sample.Entry{Name: fmt.Sprintf("%02d", i), Size: 100})
	}
	path := filepath.Join(t.TempDir(), "manifest")
	print, err := sample.WriteManifest(path, nil, entries)
	if err != nil {
		t.Fatal(err)
	}
	m, err := sample.OpenManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	sums, err := sample.OpenSums(filepath.Join(t.TempDir(), "sums"), print, samples)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sums.Close() })
	c, err := state.Parse([]byte(text), state.Defaults{Seed: "5", BatchSize: 4, WorldSize: 1, Lag: "0"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedule.New(schedule.Job{}, samples)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	log := slog.New(slog.DiscardHandler)
	b.high, err = memory.NewHigh(c, memory.Options{Dataset: memory.Dataset{Manifest: m, Sums: sums, Logger: log}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.high.Close)
	account := memquota.New(1 << 20)
	b.o = Options{Now: time.Now, Config: c, Manifest: m, Schedule: s, Host: b, Log: log, High: b.high, Observations: account.Share(0, 1<<16), Orders: account.Share(0, 1<<16),
		Path: filepath.Join(t.TempDir(), state.FilePrefix+"x"), LateEpoch: time.Minute, Timeout: time.Minute}
	if change != nil {
		change(b)
	}
	if b.Session, err = New(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// close ends the Session, which releases everything.
func (b *bed) close() {
	b.Stop(errOver)
	b.Wait()
	if n := b.o.Observations.Taken(); n != 0 {
		b.t.Errorf("%d bytes are taken by observations of a session that is over", n)
	}
}

var errOver = fmt.Errorf("the test is over")

// order waits for an epoch as a rank, and returns the rank's order.
func (b *bed) order(epoch, rank int) []sample.Index {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	if err := b.Await(ctx, rank, epoch); err != nil {
		b.t.Fatalf("epoch %d: %v", epoch, err)
	}
	page, total, err := b.Page(ctx, epoch, rank, 0, 1000)
	if err != nil || len(page) != total {
		b.t.Fatalf("epoch %d has %d of %d places: %v", epoch, len(page), total, err)
	}
	return page
}

// observes reports a loss for all samples of an order, and ends the epoch.
func (b *bed) observes(epoch, rank int, order []sample.Index, loss func(sample.Index) float32) {
	for k, batch := range slices.Collect(slices.Chunk(order, b.o.Config.BatchSize)) {
		o := score.Observation{Kind: score.Losses, Rank: uint16(rank), Epoch: uint32(epoch), Batch: uint32(k), Index: slices.Clone(batch), Node: sample.None}
		for _, i := range batch {
			o.Loss = append(o.Loss, loss(i))
		}
		b.Observe(o)
	}
	b.EndEpoch(rank, score.Progress{Epoch: epoch}, Unsent{})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
