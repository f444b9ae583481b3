package server

import (
	"context"
	"fmt"
	"testing"

	"lcache/deliver"
	"lcache/source"
)

func TestFailureOf(t *testing.T) {
	lost := &source.SampleError{Name: "a/b.jpg", Op: "read", Err: source.ErrGone}
	for _, c := range []struct {
		err          error
		kind, sample string
	}{
		{lost, "sample", "a/b.jpg"},
		{fmt.Errorf("batch: %w", lost), "sample", "a/b.jpg"},
		{&deliver.TimeoutError{For: "a disk"}, "timeout", ""},
		{&deliver.RoomError{For: "room"}, "room", ""},
		{errLate, "late", ""},
		{&deliver.ArgumentError{Reason: "index 9"}, "argument", ""},
		{deliver.ErrClosing, "closing", ""},
		{context.Canceled, "cancelled", ""},
		{broken("length"), "protocol", ""},
		{fmt.Errorf("something else"), "internal", ""},
	} {
		if f := failureOf(c.err); f.Kind != c.kind || f.Sample != c.sample || f.Message != c.err.Error() {
			t.Errorf("%v: %+v, want kind %s and sample %q", c.err, f, c.kind, c.sample)
		}
	}
}
