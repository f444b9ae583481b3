// Package object reads the objects of remote stores, such as a bucket or a web server, through one scheduler for
// every kind of store.
//
// A [Store] sends one request at a time. A [Reader] uses a store. It decides how many requests are in flight, splits
// large objects into ranges, retries after temporary errors, sends a second request if an answer is unusually slow,
// and compares every answer with the listed version of the object. An [Error] has the class of the problem. Neither
// caches bytes or compares checksums: the caller does. All methods may be called concurrently, except Close, which
// must come last.
package object

import (
	"context"
	"fmt"
	"io"
	"lcache/internal/errcode"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// A Store sends requests for objects. It does not retry and sets no deadlines.
type Store interface {
	// Get requests bytes of an object. The caller closes the answer's body, and handles a body that ends early.
	Get(ctx context.Context, r Request) (*Answer, error)
	// Stat requests the size and tag of an object.
	Stat(ctx context.Context, key string) (Info, error)
	Close() error
}

// A Request asks for Len bytes of an object, from offset From.
type Request struct {
	Key           string
	From, Len     int64
	Whole         bool   // all of the object is requested, without a range
	Tag           string // from an earlier answer. For another version the store returns an error of class Changed, or an answer with another tag. "": any version
	OwnConnection bool   // use another connection than requests without OwnConnection
}

// An Answer is a store's answer to a Request. The store reports From and Size, which may differ from the
// request.
type Answer struct {
	Body io.ReadCloser
	From int64  // offset of the body's first byte
	Size int64  // of the whole object; -1: not reported
	Tag  string // opaque name of the object's version; "": not reported
}

// Info describes an object.
type Info struct {
	Size int64  // -1: not reported
	Tag  string // as in an Answer
	Page bool   // the server reports a web page
}

// Version returns the hash of a tag, for the manifest. Without a tag it returns 0: the version is unknown.
func Version(tag string) uint64 {
	if tag == "" {
		return 0
	}
	return xxh3.HashString(tag)
}

// mostTag is the maximum length of a tag in bytes.
const mostTag = 1 << 10

// CheckTag returns an error for a tag that is too long: one is stored for each object of a listing.
func CheckTag(tag string) error {
	if len(tag) > mostTag {
		return &Error{Trouble: Final, Err: fmt.Errorf("its version (ETag) has %d bytes, at most %d", len(tag), mostTag)}
	}
	return nil
}

// Ranges returns the number of requests for an object of this size, if each is answered.
func Ranges(size int64) int64 {
	n := size / rangeBytes
	if size%rangeBytes != 0 {
		n++
	}
	return n
}

// Trouble is a class of errors that need the same reaction.
type Trouble int

const (
	Transient Trouble = iota // the same request may succeed a little later
	Slow                     // it may succeed if there are fewer requests
	Final                    // it will not succeed
	Gone                     // the object does not exist
	Changed                  // the object has another version or size than requested
)

// An Error is an error of a request. Its text is one line, without addresses that have credentials or a query.
type Error struct {
	Trouble Trouble
	Err     error
	After   time.Duration // the store asks to wait this long; 0: it does not
}

// Code returns the code of the error.
func (*Error) Code() errcode.Code { return errcode.SourceUnreachable }

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ContentRange parses the header of an answer to a range, "bytes 0-9/100". A number that can't be parsed is -1.
func ContentRange(text string) (from, size int64) {
	rest, _ := strings.CutPrefix(text, "bytes ")
	span, all, _ := strings.Cut(rest, "/")
	first, _, _ := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		from = -1
	}
	if size, err = strconv.ParseInt(all, 10, 64); err != nil {
		size = -1
	}
	return from, size
}
