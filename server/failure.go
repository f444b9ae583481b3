package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"lcache/internal/errcode"
	"lcache/internal/serve/deliver"
)

// argument returns the error of a request with invalid arguments.
func argument(format string, args ...any) error {
	return &deliver.ArgumentError{Reason: fmt.Sprintf(format, args...)}
}

// tooLarge returns the error of a request whose answer does not fit a frame: the client may request fewer samples at once.
func tooLarge(format string, args ...any) error {
	return &deliver.ArgumentError{Reason: fmt.Sprintf(format, args...), TooLarge: true}
}

// failureOf turns an error into the body of ERROR.
func failureOf(err error) failure {
	f := failure{Kind: "internal", Code: errcode.Internal, Message: err.Error()}
	var (
		rule  *protocolError
		deny  *deniedError
		wrong *deliver.ArgumentError
		late  *deliver.TimeoutError
		full  *deliver.RoomError
		crowd *crowdedError
		named interface{ SampleName() string } // source.SampleError: the name of the sample
	)
	switch {
	case errors.As(err, &rule):
		f.Kind, f.Code = "protocol", errcode.Protocol
	case errors.As(err, &deny):
		f.Kind, f.Code = "denied", errcode.Denied
	case errors.Is(err, deliver.ErrClosing), errors.As(err, &crowd):
		f.Kind, f.Code = "closing", errcode.Closing
	case errors.Is(err, errCancelled), errors.Is(err, context.Canceled):
		f.Kind, f.Code = "cancelled", errcode.Cancelled
	case errors.As(err, &wrong):
		f.Kind, f.Code = "argument", errcode.Argument
		if wrong.TooLarge {
			f.Code = errcode.TooLarge
		}
	case errors.As(err, &full):
		f.Kind, f.Code = "room", errcode.Room
	case errors.Is(err, errLate):
		f.Kind, f.Code = "late", errcode.Late
	case errors.As(err, &late):
		f.Kind, f.Code = "timeout", errcode.Timeout
	case errors.As(err, &named):
		f.Kind, f.Sample = "sample", named.SampleName()
		f.Code, f.Reason = sampleCode(err)
	}
	return f
}

// sampleCode returns the code of a sample that can't be read, and ERROR's reason; "" for other reasons.
func sampleCode(err error) (code errcode.Code, reason string) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errcode.SampleNotFound, "not_found"
	case errors.Is(err, fs.ErrPermission):
		return errcode.SampleForbidden, "permission"
	}
	return errcode.Sample, ""
}
