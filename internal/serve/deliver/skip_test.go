package deliver_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/internal/serve/deliver"
	"lcache/sample"
	"lcache/source"
)

// With SkipErrors, an unreadable sample is missing in all columns. It is counted each time and logged once.
func TestSkipErrors(t *testing.T) {
	var log bytes.Buffer
	b := newBed(t, deliver.Options{SkipErrors: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	b.bring(0, 4)
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error {
		if e.Name == b.Name(7) || e.Name == b.Name(1) {
			return &source.SampleError{Name: e.Name, Op: "read", Err: unix.EIO}
		}
		return nil
	})
	at := deliver.Position{Epoch: 0, Rank: 0, Batch: 0}
	chunk := []sample.Index{7, 0, 3, 2, 7, 4, 1}
	b.chunks[at] = slices.Clone(chunk)
	c := b.attach(os.Getpid())
	for range 2 {
		got, err := c.Chunk(t.Context(), 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if want := []sample.Index{0, 3, 2, 4}; !slices.Equal(got.Indices, want) || len(got.Offsets) != 4 || len(got.Lengths) != 4 || len(got.Labels) != 4 {
			t.Fatalf("got %+v, want columns of %v", got, want)
		}
		for i, index := range got.Indices {
			b.Is(index, b.Staging.Slice(got.Offsets[i], int(got.Lengths[i])))
		}
		c.Release(got.Lease)
	}
	if !slices.Equal(b.chunks[at], chunk) {
		t.Errorf("the schedule's own chunk was changed to %v", b.chunks[at])
	}
	all, err := c.Get(t.Context(), []sample.Index{1, 7}, nil)
	if err != nil || len(all.Indices) != 0 {
		t.Errorf("no sample can be read: %+v, %v", all, err)
	}
	c.Release(all.Lease)
	if n := b.d.Stats.Skipped.Load(); n != 2*3+2 || b.d.Stats.Samples.Load() != 2*4 {
		t.Errorf("%d counted as skipped, %d as delivered", n, b.d.Stats.Samples.Load())
	}
	if want := (deliver.Delivery{Samples: 4, Ahead: 3, From: origins(3, 1), Skipped: 3, Prefetched: 2}); !reflect.DeepEqual(b.delivered[0], want) {
		t.Errorf("told %+v, want %+v", b.delivered[0], want)
	}
	for _, i := range []sample.Index{1, 7} {
		if n := strings.Count(log.String(), "name="+b.Name(i)); n != 1 {
			t.Errorf("sample %d is named %d times in the log, want once:\n%s", i, n, log.String())
		}
	}
	if b.held() != 0 || b.Staging.SideUsed() != 0 {
		t.Errorf("slots held %d times, %d bytes of side memory", b.held(), b.Staging.SideUsed())
	}
}

// An error that does not concern the sample ends the request. Skipping a sample because the source was slow would
// lose data silently.
func TestSkipIsNotForDeadlines(t *testing.T) {
	b := newBed(t, deliver.Options{SkipErrors: true, Timeout: 5 * soon})
	b.Source.Before(func(ctx context.Context, _ sample.Entry, _ []byte) error {
		<-ctx.Done()
		return ctx.Err()
	})
	c := b.attach(os.Getpid())
	_, err := c.Get(t.Context(), []sample.Index{1}, nil)
	var late *deliver.TimeoutError
	if !errors.As(err, &late) || b.d.Stats.Skipped.Load() != 0 {
		t.Errorf("got %v, %d skipped", err, b.d.Stats.Skipped.Load())
	}
}
