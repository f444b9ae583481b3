// Package object reads the objects of remote stores, such as a bucket or a web server, through one scheduler above every kind of store.
//
// A [Store] sends one request at a time. A [Reader] is above a store and decides how many requests are under way, cuts large objects into
// ranges, asks again after trouble that may pass, asks a second time where an answer takes unusually long, and holds every answer against
// the version of the object that was listed. An [Error] says which kind of trouble a request met. Neither keeps any bytes, and neither
// compares checksums: the caller does. All methods may be called concurrently, except Close, which must come after all others.
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

// A Store sends requests for objects. It tries nothing again and sets no deadlines.
type Store interface {
	// Get asks for bytes of an object. The caller closes the answer's body. A body that ends early is the caller's concern.
	Get(ctx context.Context, r Request) (*Answer, error)
	// Stat asks what an object is, without its bytes.
	Stat(ctx context.Context, key string) (Info, error)
	Close() error
}

// A Request asks for Len bytes of an object from the offset From on.
type Request struct {
	Key       string
	From, Len int64
	Whole     bool   // it is all of the object, and no range is named
	Tag       string // of an earlier answer: another version is an error of the class Changed, or is answered with another tag. "": any
	Apart     bool   // on another connection than the requests without it
}

// An Answer is what a store answers to a Request. From and Size are the store's word, and so may differ from what was asked for.
type Answer struct {
	Body io.ReadCloser
	From int64  // the offset of the body's first byte
	Size int64  // of the whole object; -1: not told
	Tag  string // names the version of the object: opaque; "": not told
}

// Info describes an object.
type Info struct {
	Size int64  // -1: not told
	Tag  string // as in an Answer
	Page bool   // the server says that it is a web page
}

// Version is the hash of a tag that a manifest keeps; 0: there is no tag, so the version is not known.
func Version(tag string) uint64 {
	if tag == "" {
		return 0
	}
	return xxh3.HashString(tag)
}

// mostTag is how many bytes a tag may have.
const mostTag = 1 << 10

// CheckTag refuses a tag that is too long: one is kept for each object of a listing.
func CheckTag(tag string) error {
	if len(tag) > mostTag {
		return &Error{Trouble: Final, Err: fmt.Errorf("its version (ETag) has %d bytes, at most %d", len(tag), mostTag)}
	}
	return nil
}

// Ranges is how many requests an object of this size takes, if each has its answer.
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
	Passing Trouble = iota // the same request may succeed a little later
	Slow                   // it may, if there are fewer of them
	Final                  // it will not
	Gone                   // the object is not there
	Changed                // the object has another version or size than was asked for
)

// An Error is an error of a request. Its text is one line, and has no address with credentials or a query in it.
type Error struct {
	Trouble Trouble
	Err     error
	After   time.Duration // the store asks to wait this long; 0: it does not say
}

// Code returns the code of the error.
func (*Error) Code() errcode.Code { return errcode.SourceUnreachable }

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ContentRange reads the header of an answer to a range, "bytes 0-9/100". What can't be read is -1.
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
