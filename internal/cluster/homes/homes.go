// Package homes decides which peers of a cluster keep which samples.
//
// Samples are grouped into 65,536 bins, by name ([BinOf]) or by their position in a shard ([BinOfShard]). Each bin has one home, the peer that keeps
// its samples first. [New] chooses the homes by weighted rendezvous hashing: the bytes of each peer follow its weight, and a peer that joins or leaves
// moves few bins besides its own. A peer with room left keeps copies of bins whose home is another peer, nearest bins first. How far its room goes is
// one number, its [Threshold].
//
// The package is pure: it computes with integers only, so that all peers, on any hardware and in any language, agree without asking each other. It
// knows no addresses, and nothing of samples but hashes and sizes. That every byte that fits is on exactly one disk first is the aim of NoPFS (§4);
// NoPFS places samples by how often each machine reads them, which keeps fewer of them (docs/cluster.md).
package homes

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"
)

// Bins is the number of bins of every dataset.
const Bins = 1 << 16

// MaxPeers bounds the peers of one dataset.
const MaxPeers = 1024

// pieceBytes is the length of a shard's pieces that have one home, so that a home reads shards in large ranges.
const pieceBytes = 4 << 20

// A Peer is a member of the cluster that keeps samples of the dataset.
type Peer struct {
	ID     [16]byte // of its cache: the same after a restart
	Weight uint64   // its share of the homes is its share of the weights; above 0
}

// BinOf returns the bin of a sample with a file of its own. name is the xxh3-64 of its name.
func BinOf(name uint64) uint16 { return uint16(name) }

// BinOfShard returns the bin of a sample in a shard. position is where it begins. Neighbours in a shard share a bin.
func BinOfShard(shard string, position uint64) uint16 {
	b := append(make([]byte, 0, len(shard)+9), shard...)
	b = append(b, 0)
	return uint16(xxh3.Hash(binary.LittleEndian.AppendUint64(b, position/pieceBytes)))
}

// Homes are the homes of all bins for one set of peers. They never change. All methods may be called concurrently.
type Homes struct {
	peers  []Peer
	home   []uint16 // of each bin
	second []uint16 // the peer with rank 1 of each bin; nil: there is only one peer
}

// New chooses the homes of all bins for 1 to MaxPeers peers with different IDs. Their order only numbers them. loads are the padded bytes of each
// bin's samples.
//
// Bins are given out in ascending order, each to the peer that the hash puts first. A peer whose bins reach 1.01 × its fair share of the bytes is
// passed over.
func New(peers []Peer, loads []uint64) *Homes {
	h := &Homes{peers: slices.Clone(peers), home: make([]uint16, Bins)}
	if len(peers) > 1 {
		h.second = make([]uint16, Bins)
	}
	limits, kept := limits(peers, loads), make([]uint64, len(peers))
	scores := make([]uint64, len(peers))
	for bin := range h.home {
		h.score(uint16(bin), scores)
		home := h.first(scores, func(p int) bool { return kept[p] < limits[p] })
		if home < 0 { // only if no bin has a byte
			home = h.first(scores, func(int) bool { return true })
		}
		h.home[bin] = uint16(home)
		kept[home] += loads[bin]
		if h.second != nil {
			h.second[bin] = uint16(h.first(scores, func(p int) bool { return p != home }))
		}
	}
	return h
}

// limits returns 1.01 × each peer's fair share of the bytes.
func limits(peers []Peer, loads []uint64) []uint64 {
	var total, weights uint64
	for _, n := range loads {
		total += n
	}
	for _, p := range peers {
		weights += p.Weight
	}
	limits := make([]uint64, len(peers))
	for i, p := range peers {
		hi, lo := bits.Mul64(total, p.Weight)
		fair, _ := bits.Div64(hi, lo, weights)
		limits[i] = fair + fair/100
	}
	return limits
}

// score sets the score of each peer for a bin: −log₂ of the hash of both, as a fraction of 2⁶⁴. The lower, the nearer.
func (h *Homes) score(bin uint16, scores []uint64) {
	var b [18]byte
	binary.LittleEndian.PutUint16(b[:], bin)
	for p := range h.peers {
		copy(b[2:], h.peers[p].ID[:])
		scores[p] = minusLog2(xxh3.Hash(b[:]))
	}
}

// first returns the nearest of the peers that may be chosen; -1: none may.
func (h *Homes) first(scores []uint64, mayChoose func(peer int) bool) int {
	first := -1
	for p := range h.peers {
		if mayChoose(p) && (first < 0 || h.isNearer(scores, p, first)) {
			first = p
		}
	}
	return first
}

// isNearer reports whether p comes before q: its score divided by its weight is lower.
func (h *Homes) isNearer(scores []uint64, p, q int) bool {
	a, b := h.peers[p], h.peers[q]
	aHi, aLo := bits.Mul64(scores[p], b.Weight)
	bHi, bLo := bits.Mul64(scores[q], a.Weight)
	switch {
	case aHi != bHi:
		return aHi < bHi
	case aLo != bLo:
		return aLo < bLo
	}
	return bytes.Compare(a.ID[:], b.ID[:]) < 0
}

// minusLog2 returns −log₂(x ÷ 2⁶⁴) with 32 bits after the point, rounded up: 1 to 64 · 2³². 0 counts as 1.
func minusLog2(x uint64) uint64 {
	x = max(x, 1)
	zeros := bits.LeadingZeros64(x)
	log := uint64(63 - zeros)
	m := x << zeros // in [1, 2), with 63 bits after the point
	for range 32 {
		hi, lo := bits.Mul64(m, m) // in [1, 4), with 126 bits after the point
		bit := hi >> 63            // 1: it is 2 or more, and is halved. A branch would be mispredicted every other time
		log = log<<1 | bit
		m = hi<<(1-bit) | lo>>63&(1-bit)
	}
	return 64<<32 - log
}

// Home returns the number of a bin's home.
func (h *Homes) Home(bin uint16) int { return int(h.home[bin]) }

// Second returns the peer that keeps the first copies of a bin; ok: there is more than one peer.
func (h *Homes) Second(bin uint16) (peer int, ok bool) {
	if h.second == nil {
		return 0, false
	}
	return int(h.second[bin]), true
}

// Ranks returns a peer's rank for each bin: 0 where it is the home, 1 where it keeps the first copies, and so on. It takes as long as New.
func (h *Homes) Ranks(peer int) []uint16 {
	ranks := make([]uint16, Bins)
	scores := make([]uint64, len(h.peers))
	for bin, home := range h.home {
		if int(home) == peer {
			continue
		}
		h.score(uint16(bin), scores)
		rank := 1
		for q := range h.peers {
			if q != peer && q != int(home) && h.isNearer(scores, q, peer) {
				rank++
			}
		}
		ranks[bin] = uint16(rank)
	}
	return ranks
}
