package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
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

// TestReasonOf: a client learns that a sample is gone, or forbidden, without reading the message.
func TestReasonOf(t *testing.T) {
	of := func(err error) error { return &source.SampleError{Name: "a", Op: "open", Err: err} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{of(fmt.Errorf("%w: %w", source.ErrGone, fs.ErrNotExist)), "not_found"},
		{of(fs.ErrPermission), "permission"},
		{of(source.ErrChanged), ""},
		{fs.ErrNotExist, ""},
	} {
		f := failureOf(c.err)
		var got struct{ Kind, Message, Sample, Reason string }
		if err := json.Unmarshal(appendReasoned(nil, 1, f, reasonOf(f, c.err))[headerBytes:], &got); err != nil {
			t.Fatal(err)
		}
		if got.Reason != c.want || got.Kind != f.Kind || got.Sample != f.Sample || got.Message != f.Message {
			t.Errorf("%v: got %+v, want reason %q", c.err, got, c.want)
		}
	}
}
