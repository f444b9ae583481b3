package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"lcache/deliver"
)

// argument returns the error of a request that asks for something impossible.
func argument(format string, args ...any) error {
	return &deliver.ArgumentError{Reason: fmt.Sprintf(format, args...)}
}

// failureOf turns an error into the body of ERROR.
func failureOf(err error) failure {
	f := failure{Kind: "internal", Message: err.Error()}
	var (
		rule  *protocolError
		deny  *deniedError
		wrong *deliver.ArgumentError
		late  *deliver.TimeoutError
		full  *deliver.RoomError
		crowd *crowdedError
		named interface{ SampleName() string } // source.SampleError: which sample it was
	)
	switch {
	case errors.As(err, &rule):
		f.Kind = "protocol"
	case errors.As(err, &deny):
		f.Kind = "denied"
	case errors.Is(err, deliver.ErrClosing), errors.As(err, &crowd):
		f.Kind = "closing"
	case errors.Is(err, errCancelled), errors.Is(err, context.Canceled):
		f.Kind = "cancelled"
	case errors.As(err, &wrong):
		f.Kind = "argument"
	case errors.As(err, &full):
		f.Kind = "room"
	case errors.Is(err, errLate):
		f.Kind = "late"
	case errors.As(err, &late):
		f.Kind = "timeout"
	case errors.As(err, &named):
		f.Kind, f.Sample = "sample", named.SampleName()
	}
	return f
}

// reasoned is the body of ERROR.
type reasoned struct {
	failure
	Reason string `json:"reason,omitempty"`
}

// reasonOf names why a sample can't be read; "": for another reason, or the error is of another kind.
func reasonOf(f failure, err error) string {
	switch {
	case f.Kind != "sample":
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "not_found"
	case errors.Is(err, fs.ErrPermission):
		return "permission"
	}
	return ""
}
