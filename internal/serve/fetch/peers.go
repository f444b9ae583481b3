package fetch

import (
	"context"
	"time"

	"lcache/internal/serve/staging"
	"lcache/sample"
)

// Peers are the other machines that have samples of the dataset.
type Peers interface {
	// Holder returns the peer that should have a sample. n counts the peers that were asked for it before. ok is false if no further peer should be
	// asked, because the source has the sample sooner. Holder takes no locks.
	Holder(index sample.Index, n int) (peer string, ok bool)
	// Fetch requests samples from a peer. It returns when the peer has answered, is late, or ctx has ended; then to is not called any longer.
	Fetch(ctx context.Context, peer string, indices []sample.Index, to Sink) error
	// Wrong notes that a peer has sent a sample with wrong bytes.
	Wrong(peer string)
}

// An Arrival is a part of a sample that a peer sends. A sample's parts come in order; most samples have one.
type Arrival struct {
	Index      sample.Index
	Absent     bool // the peer does not have the sample
	FromSource bool // the peer read the source for it
	Offset     uint32
	Length     uint32
	Sum        uint64 // xxh3-64 of the whole sample
}

// A Sink takes what a peer sends. Its methods are called from one goroutine at a time.
type Sink interface {
	// Room returns where the bytes of an Arrival go: exactly Length bytes. nil: they are dropped.
	Room(a Arrival) []byte
	// Came reports that an Arrival is in its room, or that the sample is absent.
	Came(a Arrival)
}

// PeerTime is the default of Options.PeerTime.
const PeerTime = time.Second

type (
	aloneKey    struct{}
	forPeersKey struct{}
)

// Alone returns a context whose reads request nothing from peers.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

// ForPeers returns a context for reads of samples that another machine wants. They request nothing from peers, so that no request is passed on. They use
// memory of their own, so that they and this machine's requests don't wait for each other.
func ForPeers(ctx context.Context) context.Context {
	return context.WithValue(Alone(ctx), forPeersKey{}, true)
}

func isForPeers(ctx context.Context) bool { return ctx.Value(forPeersKey{}) != nil }

// poolOf returns the memory for n bytes that are read with a context. Samples that are larger than the memory for other machines use side memory.
func (f *Fetcher) poolOf(ctx context.Context, n int64) staging.Pool {
	if isForPeers(ctx) && n <= f.o.Staging.PeerBytes() {
		return staging.Peers
	}
	return staging.Side
}

// fromPeers requests a sample from the peers that should have it.
func (f *Fetcher) fromPeers(ctx context.Context, index sample.Index, buf []byte, req *request) (got Got, ok bool, err error) {
	if f.o.Peers == nil || ctx.Value(aloneKey{}) != nil || req.has(buf) { // a late read may still write to buf
		return got, false, nil
	}
	size := f.o.Manifest.Size(index)
	data := buf[:size:size]
	from, ok := f.Peer(ctx, index, data)
	return Got{Data: data, From: from}, ok, nil
}

// Peer requests one sample from the peers that should have it, and writes it to dst, which has the sample's size. from is FromSource if the peer read
// the source for it.
func (f *Fetcher) Peer(ctx context.Context, index sample.Index, dst []byte) (from sample.Origin, ok bool) {
	for n := 0; ; n++ {
		peer, more := f.o.Peers.Holder(index, n)
		if !more || ctx.Err() != nil {
			return from, false
		}
		limit := f.o.PeerTime
		if at, limited := ctx.Deadline(); limited {
			limit = min(limit, time.Until(at)/2)
		}
		asked, cancel := context.WithTimeout(ctx, limit)
		one := &oneSample{dst: dst}
		began := time.Now()
		_ = f.o.Peers.Fetch(asked, peer, []sample.Index{index}, one) // whatever went wrong, the next supplier is tried
		cancel()
		if one.whole && f.Received(ctx, peer, one.last, dst, began) {
			return one.last.From(), true
		}
	}
}

// From returns the origin of a sample that has arrived.
func (a Arrival) From() sample.Origin {
	if a.FromSource {
		return sample.FromSource
	}
	return sample.FromPeer
}

// Received checks a sample that a peer sent whole. It learns a checksum that is not known yet, counts the sample, and passes it to OnRead. It returns
// false if the bytes are wrong.
func (f *Fetcher) Received(ctx context.Context, peer string, a Arrival, data []byte, began time.Time) bool {
	sum := sample.Sum(data)
	want, known := f.o.Sums.Get(a.Index)
	if sum != a.Sum || known && sum != want {
		f.Stats.PeerCorrupt.Add(1)
		f.o.Peers.Wrong(peer)
		return false
	}
	if !known {
		f.o.Sums.Set(a.Index, sum)
	}
	f.count(ctx, sample.FromPeer, len(data), began)
	if f.o.OnRead != nil {
		f.o.OnRead(sample.FromPeer, a.Index, data)
	}
	return true
}

// oneSample is the Sink of one sample.
type oneSample struct {
	dst   []byte
	last  Arrival
	whole bool
}

func (o *oneSample) Room(a Arrival) []byte {
	end := uint64(a.Offset) + uint64(a.Length)
	if o.whole || end > uint64(len(o.dst)) {
		return nil
	}
	return o.dst[a.Offset:end]
}

func (o *oneSample) Came(a Arrival) {
	o.last = a
	o.whole = !a.Absent && uint64(a.Offset)+uint64(a.Length) == uint64(len(o.dst))
}
