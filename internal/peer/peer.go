// Package peer carries samples between lcache servers of several machines.
//
// A server answers the requests of its peers ([Server]): a LIST of samples gets PARCELs of their bytes, in any order, and a DONE. A sample that the server
// does not have is absent, and the consumer reads it from the source. A consumer ([Client]) has one stream to each peer for each dataset, and any number of
// LISTs on it. A consumer reserves room for the samples that it lists before it asks: that is the flow control, because both sides know every size.
//
// gRPC streams carry frames of our own (format.go). Both sides prove by certificates that they have the cluster's key. A peer that is silent too long,
// or makes no progress, is late: all requests to it end with [ErrLate], and the stream is opened again after a while.
//
// The package does not know which peer keeps a sample, or where its bytes go: a [Home] brings samples, and a [Sink] takes them. A server holds a
// bounded number of bytes for each stream, and for all samples that are larger than that together. It closes the connection of a consumer that takes nothing.
package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"lcache/sample"
)

// Times of both sides.
const (
	markEvery   = 500 * time.Millisecond // between MARKs while a LIST is open
	DefaultLate = time.Second            // of silence after which a peer is late
	parcelWait  = 20 * time.Millisecond  // from the first sample of a PARCEL until it is sent
	parcelBytes = 1 << 20                // after which a PARCEL is sent
	stuckTime   = 10 * time.Second       // that a frame may take to be sent: the other side takes nothing
	DefaultIdle = time.Minute            // without a request, after which a consumer closes its connection
	unusedTime  = 2 * DefaultIdle        // without a LIST, after which a server ends a stream
)

// Errors of Fetch. The samples that have not come can be read from the source.
var (
	ErrLate    = errors.New("the peer does not answer")
	ErrRefused = errors.New("the peer refused")
)

// A Home brings the samples of one dataset for peers. Its methods may be called concurrently.
type Home interface {
	Samples() int
	Size(sample.Index) int // bytes of a sample

	// Bring calls to once for each sample, at any time until it returns, from one goroutine at a time. It returns soon after ctx has ended,
	// and may leave out samples then.
	Bring(ctx context.Context, indices []sample.Index, to func(Brought))

	// Work says what the home does for all peers: a home that brings one of them nothing for a while, because it works for another, is not late. done
	// grows with each read of its disks. waits reports whether a read is under way that may take long, of the source or of many bytes.
	Work() (done uint64, waits bool)

	// Manifest returns the dataset's manifest, which does not change.
	Manifest() []byte
}

// Brought is a sample that a Home brings, or its absence.
type Brought struct {
	Index   sample.Index
	Why     Why
	Sum     uint64 // xxh3-64 of Bytes
	Bytes   []byte // the whole sample
	Release func() // called once, when Bytes have been read; may be nil
}

// A Piece is a part of a sample that arrived. A sample in one piece has Offset 0 and all its bytes.
type Piece struct {
	Index  sample.Index
	Why    Why
	Offset uint32 // in the sample
	Length uint32
	Sum    uint64 // of the whole sample
}

// A Sink takes what Fetch gets. Its methods are called from one goroutine at a time.
type Sink interface {
	// Room returns where a piece's bytes go: exactly Length bytes. nil: they are dropped.
	Room(p Piece) []byte

	// Came says that a piece is in its room, or that the sample is absent. After it the sample may come again, which is then dropped by Room.
	Came(p Piece)
}

// Protocol is the version of frames and of the metadata of streams.
const Protocol = "1"

// Metadata of a stream.
const (
	metaProtocol = "lcache-protocol"
	metaPeer     = "lcache-peer"    // identity of the consumer
	metaDataset  = "lcache-dataset" // fingerprint, in hexadecimal
)

// The service, as gRPC wants it described. Its messages are frames.
const (
	fetchMethod    = "/lcache.Peer/Fetch"
	manifestMethod = "/lcache.Peer/Manifest"
)

var (
	fetchDesc    = grpc.StreamDesc{StreamName: "Fetch", ServerStreams: true, ClientStreams: true}
	manifestDesc = grpc.StreamDesc{StreamName: "Manifest", ServerStreams: true, ClientStreams: true}
)

// lateError is an ErrLate with what happened.
func lateError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLate, fmt.Sprintf(format, args...))
}
