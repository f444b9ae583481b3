package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"lcache/internal/cluster/homes"
)

// An announcement travels as gossip metadata, in little-endian order:
//
//	magic 2 "lc" | version 1 | protocol 1 | data port 2 | started, ms since 1970 8 | host 1 + n | program 1 + n | datasets 1 + 35 each
//	dataset: key 8 | cache 16 | threshold 8 | weight 2 | flags 1
const (
	announcementVersion = 1
	datasetBytes        = 35
	mostDatasets        = 10
	mostHost            = 63
	mostProgram         = 32
)

// Protocol is the version of the protocol between machines.
const Protocol = 1

// A DatasetKey names a dataset among members: the first 8 bytes of its fingerprint.
type DatasetKey [8]byte

// A CacheID names a cache. It is the same after a restart.
type CacheID [16]byte

// Flags of an Offer.
const (
	FlagLog     uint8 = 1 << iota // the cache has the log layout
	FlagLeaving                   // the cache gives its bins away
	FlagKnown                     // Threshold says what the member keeps, even if it is 0
)

// An Offer is the part of a member in one dataset.
type Offer struct {
	Dataset   DatasetKey
	Cache     CacheID
	Threshold homes.Threshold // 0 without FlagKnown: the member has not decided yet
	Weight    uint16          // room for samples, in 1/1,024 of the dataset; at most WeightAll
	Flags     uint8
}

// IsKnown reports whether the member has announced what it keeps. Earlier versions have no FlagKnown.
func (o *Offer) IsKnown() bool { return o.Threshold != 0 || o.Flags&FlagKnown != 0 }

// WeightAll is the weight of a cache with room for the whole dataset.
const WeightAll = 1024

// WeightOf returns the weight of a cache that has room for part of a dataset. It changes in steps, so a restart with slightly more or less room
// changes nothing. It is at least 1 if the cache has room for anything.
func WeightOf(room, dataset uint64) uint16 {
	if room == 0 || dataset == 0 {
		return 0
	}
	share := float64(min(room, dataset)) / float64(dataset)
	return uint16(max(1, share*WeightAll))
}

// An announcement describes a member to the others.
type announcement struct {
	protocol uint8
	dataPort uint16    // for samples; 0: none
	started  time.Time // to the millisecond
	host     string    // for people
	program  string    // version of lcache
	offers   []Offer
}

// encode returns the announcement's bytes: 508 at most. It cuts names that are too long, and panics if there are too many offers.
func (a *announcement) encode() []byte {
	if len(a.offers) > mostDatasets {
		panic("too many datasets")
	}
	le := binary.LittleEndian
	b := append(make([]byte, 0, 512), 'l', 'c', announcementVersion, a.protocol)
	b = le.AppendUint16(b, a.dataPort)
	b = le.AppendUint64(b, uint64(a.started.UnixMilli()))
	for _, s := range []string{a.host[:min(len(a.host), mostHost)], a.program[:min(len(a.program), mostProgram)]} {
		b = append(append(b, byte(len(s))), s...)
	}
	b = append(b, byte(len(a.offers)))
	for _, o := range a.offers {
		b = append(append(b, o.Dataset[:]...), o.Cache[:]...)
		b = le.AppendUint64(b, uint64(o.Threshold))
		b = append(le.AppendUint16(b, o.Weight), o.Flags)
	}
	return b
}

var errAnnouncement = errors.New("its announcement is not one of lcache")

// decodeAnnouncement reads the bytes of encode. Later versions may add bytes at the end.
func decodeAnnouncement(b []byte) (*announcement, error) {
	le := binary.LittleEndian
	if len(b) < 14 || string(b[:2]) != "lc" {
		return nil, errAnnouncement
	}
	if b[2] != announcementVersion {
		return nil, fmt.Errorf("its announcement has version %d, and this program knows version %d: run one version of lcache on all machines", b[2], announcementVersion)
	}
	a := &announcement{protocol: b[3], dataPort: le.Uint16(b[4:]), started: time.UnixMilli(int64(le.Uint64(b[6:])))}
	b = b[14:]
	for _, f := range []struct {
		to   *string
		most int
	}{{&a.host, mostHost}, {&a.program, mostProgram}} {
		if len(b) < 1 || int(b[0]) > f.most || len(b) < 1+int(b[0]) {
			return nil, errAnnouncement
		}
		*f.to, b = string(b[1:1+b[0]]), b[1+b[0]:]
	}
	if len(b) < 1 || b[0] > mostDatasets || len(b) < 1+int(b[0])*datasetBytes {
		return nil, errAnnouncement
	}
	n := int(b[0])
	for b = b[1:]; len(a.offers) < n; b = b[datasetBytes:] {
		o := Offer{DatasetKey(b[:8]), CacheID(b[8:24]), homes.Threshold(le.Uint64(b[24:])), le.Uint16(b[32:]), b[34]}
		if o.Weight > WeightAll || o.Threshold > homes.MaxPeers*homes.One {
			return nil, errAnnouncement
		}
		a.offers = append(a.offers, o)
	}
	return a, nil
}
