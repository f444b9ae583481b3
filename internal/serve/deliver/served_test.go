package deliver_test

import (
	"context"
	"os"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/internal/serve/deliver"
	"lcache/sample"
	"lcache/source"
)

// If other samples are served in place of some, an answer has both lists, column by column: by position, by index
// with that position, by temporary lease, and without unreadable samples.
func TestServedInPlace(t *testing.T) {
	b := newBed(t, deliver.Options{SkipErrors: true})
	at := deliver.Position{}
	requested, served := []sample.Index{7, 0, 1, 2, 5}, []sample.Index{7, 4, 1, 6, 5}
	b.chunks[at], b.requested = served, map[deliver.Position][]sample.Index{at: requested}
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error {
		if e.Name == b.Name(1) {
			return &source.SampleError{Name: e.Name, Op: "read", Err: unix.ENOENT}
		}
		return nil
	})
	c := b.attach(os.Getpid())
	is := func(name string, got *deliver.Batch, err error, requested, served []sample.Index) {
		t.Helper()
		if err != nil || !slices.Equal(got.Indices, served) || !slices.Equal(got.Requested, requested) || (got.Requested == nil) != (requested == nil) {
			t.Fatalf("%s: %v, %+v; want %v for %v", name, err, got, served, requested)
		}
		for k, i := range got.Indices {
			if got.Lengths[k] != sizes[i] || got.Labels[k] != b.Manifest.Label(i) {
				t.Errorf("%s: sample %d has %d bytes and label %d", name, i, got.Lengths[k], got.Labels[k])
			}
			b.Is(i, b.Staging.Slice(got.Offsets[k], int(got.Lengths[k])))
		}
	}
	without := [2][]sample.Index{{7, 0, 2, 5}, {7, 4, 6, 5}}
	for range 2 {
		got, err := c.ChunkAt(t.Context(), at)
		is("by position", got, err, without[0], without[1])
		c.Release(got.Lease)
	}
	got, err := c.Get(t.Context(), requested, &at)
	is("by index, for a program that expects exactly the requested samples", got, err, nil, []sample.Index{7, 0, 2, 5})
	c.Release(got.Lease)
	c.TakesOthers()
	got, err = c.Get(t.Context(), requested, &at)
	is("by index", got, err, without[0], without[1])
	c.Release(got.Lease)
	if last := b.delivered[len(b.delivered)-1]; !slices.Equal(last.Requested, without[0]) || last.Skipped != 1 {
		t.Errorf("delivered %+v", last)
	}
	got, err = c.Get(t.Context(), requested, nil)
	is("without a position", got, err, nil, []sample.Index{7, 0, 2, 5})
	c.Release(got.Lease)
	loan, err := c.Lend(t.Context(), requested, 3, &at)
	is("lent", loan.Batch, err, []sample.Index{2, 5}[:loan.Next-3], []sample.Index{6, 5}[:loan.Next-3])
	if !c.Copied(loan.Lease) || !reflect.DeepEqual(b.delivered[len(b.delivered)-1].Requested, loan.Requested) {
		t.Errorf("the loan %+v was delivered as %+v", loan, b.delivered[len(b.delivered)-1])
	}
}
