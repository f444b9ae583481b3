package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"testing"

	"lcache/internal/errcode"
	"lcache/internal/serve/deliver"
	"lcache/source"
)

func TestFailureOf(t *testing.T) {
	lost := &source.SampleError{Name: "a/b.jpg", Op: "read", Err: source.ErrGone}
	for _, c := range []struct {
		err          error
		code         errcode.Code
		kind, sample string
	}{
		{lost, errcode.Sample, "sample", "a/b.jpg"},
		{fmt.Errorf("batch: %w", lost), errcode.Sample, "sample", "a/b.jpg"},
		{&deliver.TimeoutError{For: "a disk"}, errcode.Timeout, "timeout", ""},
		{&deliver.RoomError{For: "room"}, errcode.Room, "room", ""},
		{errLate, errcode.Late, "late", ""},
		{&deliver.ArgumentError{Reason: "index 9"}, errcode.Argument, "argument", ""},
		{&deliver.ArgumentError{Reason: "5 bytes", TooLarge: true}, errcode.TooLarge, "argument", ""},
		{deliver.ErrClosing, errcode.Closing, "closing", ""},
		{&crowdedError{}, errcode.Closing, "closing", ""},
		{&deniedError{}, errcode.Denied, "denied", ""},
		{errCancelled, errcode.Cancelled, "cancelled", ""},
		{context.Canceled, errcode.Cancelled, "cancelled", ""},
		{broken("length"), errcode.Protocol, "protocol", ""},
		{fmt.Errorf("something else"), errcode.Internal, "internal", ""},
	} {
		if f := failureOf(c.err); f.Kind != c.kind || f.Code != c.code || f.Sample != c.sample || f.Message != c.err.Error() {
			t.Errorf("%v: %+v, want kind %s, code %s and sample %q", c.err, f, c.kind, c.code, c.sample)
		}
	}
}

// TestReasonOf: a client learns that a sample is gone, or forbidden, without reading the message.
func TestReasonOf(t *testing.T) {
	of := func(err error) error { return &source.SampleError{Name: "a", Op: "open", Err: err} }
	for _, c := range []struct {
		err  error
		code errcode.Code
		want string
	}{
		{of(fmt.Errorf("%w: %w", source.ErrGone, fs.ErrNotExist)), errcode.SampleNotFound, "not_found"},
		{of(fs.ErrPermission), errcode.SampleForbidden, "permission"},
		{of(source.ErrChanged), errcode.Sample, ""},
		{fs.ErrNotExist, errcode.Internal, ""},
	} {
		f := failureOf(c.err)
		var got struct{ Kind, Message, Sample, Reason, Code string }
		if err := json.Unmarshal(appendFailure(nil, 1, f)[headerBytes:], &got); err != nil {
			t.Fatal(err)
		}
		if got.Reason != c.want || got.Code != string(c.code) || got.Kind != f.Kind || got.Sample != f.Sample || got.Message != f.Message {
			t.Errorf("%v: got %+v, want reason %q and code %s", c.err, got, c.want, c.code)
		}
	}
}
