// Package peers decides, for one dataset of a cluster, which samples this machine keeps, and which peer to ask for the others.
//
// A [Dataset] follows the rosters of its member. From each roster it makes the homes of all bins (package homes), and from the room of this machine's
// cache and the samples in it the [homes.Threshold] that says what it keeps, which the member announces to the others. Between two rosters it follows the peers' thresholds,
// addresses and states. A peer that sends wrong bytes again and again is put aside for a while. Lookups take no lock and make no request.
//
// The package moves no samples: see package peer for the transport, and package fetch for the order in which suppliers are tried.
package peers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"lcache/internal/cluster"
	"lcache/internal/cluster/homes"
	"lcache/sample"
)

// Options of a Dataset.
type Options struct {
	Manifest *sample.Manifest
	Padded   func(size uint32) uint64 // bytes that a sample takes on this machine's disks
	Cache    cluster.CacheID          // of this machine
	Room     uint64                   // bytes for samples on this machine's disks, if they were empty
	Left     func() uint64            // of Room, now; nil: all
	Held     func(sample.Index) bool  // whether this machine's disks have a sample; nil: they have none
	Announce func(homes.Threshold)    // sends this machine's threshold to the others
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// A Dataset is described in the package comment. All methods may be called concurrently, except See.
type Dataset struct {
	o     Options
	bins  func(sample.Index) uint16
	loads []uint64 // padded bytes of each bin
	bytes uint64   // sum of loads
	table atomic.Pointer[table]
	ready chan struct{} // closed with the first table in which all peers have announced what they keep
	aside aside

	warned bool // about samples of an earlier roster; used by See
}

// table is what a Dataset knows at one moment. It is not changed.
type table struct {
	roster    *cluster.Roster
	homes     *homes.Homes
	ranks     []uint16        // of this machine, by bin; nil: it is not in the roster
	threshold homes.Threshold // of this machine
	part      homes.Part      // of the dataset, that it keeps
	self      int             // its number; -1: not in the roster
	peers     []remote        // by number
	shares    []uint64        // by number: padded bytes of the bins whose home the peer is
}

// remote is a peer of a table.
type remote struct {
	address   string // for samples; "": it can't be asked now
	threshold homes.Threshold
	isKnown   bool // it has announced the threshold for the table's roster
}

// New returns a Dataset that knows no roster yet. It looks at each sample.
func New(o Options) *Dataset {
	if o.Now == nil {
		o.Now = time.Now
	}
	d := &Dataset{o: o, bins: binsOf(o.Manifest), loads: make([]uint64, homes.Bins), ready: make(chan struct{})}
	for i, size := range o.Manifest.Sizes() {
		n := o.Padded(size)
		d.loads[d.bins(sample.Index(i))] += n
		d.bytes += n
	}
	return d
}

// binsOf returns the bin of each sample. Samples in a shard that are near each other share a bin, so that a home reads large ranges of shards.
func binsOf(m *sample.Manifest) func(sample.Index) uint16 {
	shards := m.Shards()
	if len(shards) == 0 {
		return func(index sample.Index) uint16 { return homes.BinOf(m.NameHash(index)) }
	}
	return func(index sample.Index) uint16 {
		shard, at := m.PlaceOf(index)
		return homes.BinOfShard(shards[shard].Name, at)
	}
}

// Follow follows the rosters of a member until ctx ends.
func (d *Dataset) Follow(ctx context.Context, m *cluster.Member, key cluster.DatasetKey) {
	for v := (*cluster.View)(nil); ; {
		if v = m.Newer(ctx, v); v == nil {
			return
		}
		of := v.Datasets[key]
		if of.State == cluster.Refused { // another machine has this cache's identity: this one keeps its samples for itself
			of = cluster.DatasetView{Roster: &cluster.Roster{Peers: []cluster.RosterPeer{{ID: d.o.Cache, Weight: cluster.WeightAll}}}}
		}
		d.See(of)
	}
}

// See takes a member's newest view of the dataset. A new roster takes a while: the homes of all bins are computed.
func (d *Dataset) See(v cluster.DatasetView) {
	if v.Roster == nil {
		return
	}
	was := d.table.Load()
	t := &table{}
	isNew := was == nil || was.roster != v.Roster && !slices.Equal(was.roster.Peers, v.Roster.Peers)
	if !isNew {
		*t = *was
	} else {
		d.assign(t, v.Roster)
	}
	t.peers = remotes(v, t.self, t.peers)
	d.table.Store(t)
	if isNew && t.self >= 0 {
		d.o.Logger.Info("this machine keeps its part of the dataset", "peers", len(t.peers), "keeps", humanize.Bytes(t.part.Kept), "copies", fmt.Sprintf("%.2f", t.threshold.Float()))
		d.o.Announce(t.threshold)
		d.warn(t.part)
	}
	if t.allAnnounced() {
		select {
		case <-d.ready:
		default:
			close(d.ready)
		}
	}
}

// notableUnassigned is the part of the room, one in notableUnassigned bytes, from which held samples of an earlier roster are worth a warning.
const notableUnassigned = 50

// isNotable reports whether samples that a machine holds and does not keep take a notable part of its room.
func isNotable(unassigned, room uint64) bool { return unassigned > room/notableUnassigned }

// warn warns once if much of the room is taken by samples that the roster gives to other machines.
func (d *Dataset) warn(p homes.Part) {
	notable := isNotable(p.Unassigned, d.o.Room)
	if notable && !d.warned {
		d.o.Logger.Warn("samples that belong to other machines now take a part of this cache's room; if the machines stay as they are, stop the server, remove the cache with lcache rm, and start again",
			"bytes", humanize.Bytes(p.Unassigned), "room", humanize.Bytes(d.o.Room), "missing", humanize.Bytes(p.Missing))
	}
	d.warned = notable
}

// assign computes the homes of a roster, and what this machine keeps.
func (d *Dataset) assign(t *table, r *cluster.Roster) {
	t.roster, t.self = r, -1
	all := make([]homes.Peer, len(r.Peers))
	for i, p := range r.Peers {
		all[i] = homes.Peer{ID: p.ID, Weight: uint64(p.Weight)}
		if p.ID == d.o.Cache {
			t.self = i
		}
	}
	if len(all) == 0 {
		return
	}
	t.homes = homes.New(all, d.loads)
	t.shares = make([]uint64, len(all))
	for bin, n := range d.loads {
		t.shares[t.homes.Home(uint16(bin))] += n
	}
	if t.self < 0 {
		return
	}
	t.ranks = t.homes.Ranks(t.self)
	sizes := d.o.Manifest.Sizes()
	disks := homes.Store{Room: d.o.Room, Left: d.o.Room}
	if d.o.Left != nil {
		disks.Left = d.o.Left()
	}
	if d.o.Held != nil {
		disks.Held = func(i int) bool { return d.o.Held(sample.Index(i)) }
	}
	t.threshold, t.part = homes.Believable(t.ranks, len(all), len(sizes), func(i int) homes.Sample {
		index := sample.Index(i)
		return homes.Sample{Bin: d.bins(index), Name: d.o.Manifest.NameHash(index), Padded: d.o.Padded(sizes[i])}
	}, disks)
}

// remotes returns the peers of a view's roster, by number. before are the peers of the last view, if its roster was equal; else nil. A lost peer has no
// address: its samples come from the source. A peer that is back has its old threshold until it announces a new one.
func remotes(v cluster.DatasetView, self int, before []remote) []remote {
	list := make([]remote, len(v.Roster.Peers))
	for i, r := range v.Roster.Peers {
		if before != nil {
			list[i] = remote{threshold: before[i].threshold, isKnown: before[i].isKnown}
		}
		at := slices.IndexFunc(v.Peers, func(p cluster.PeerView) bool { return p.Cache == r.ID && p.State == cluster.PeerOK && !p.Self })
		if at < 0 || i == self {
			continue
		}
		p := &v.Peers[at]
		list[i].address = p.Data
		if p.IsKnown() || !list[i].isKnown {
			list[i].threshold, list[i].isKnown = p.Threshold, p.IsKnown()
		}
	}
	return list
}

// allAnnounced reports whether every peer that can be asked has announced what it keeps.
func (t *table) allAnnounced() bool {
	for i, p := range t.peers {
		if i != t.self && p.address != "" && !p.isKnown {
			return false
		}
	}
	return true
}

// Ready returns a channel that is closed when there is a roster and all of its peers have announced what they keep. Before that, samples come from the
// source and are kept nowhere.
func (d *Dataset) Ready() <-chan struct{} { return d.ready }

// Keeps reports whether this machine keeps a sample. Before the first roster it keeps none.
func (d *Dataset) Keeps(index sample.Index) bool {
	t := d.table.Load()
	return t != nil && t.self >= 0 && t.threshold.Keeps(t.ranks[d.bins(index)], d.o.Manifest.NameHash(index))
}

// IsHome reports whether this machine is the home of a sample, and keeps it: it reads the source for all others.
func (d *Dataset) IsHome(index sample.Index) bool {
	t := d.table.Load()
	return t != nil && t.self >= 0 && t.homes.Home(d.bins(index)) == t.self && t.threshold.Keeps(0, d.o.Manifest.NameHash(index))
}

// Holder returns the address of the peer that should have a sample: its home, or the peer with the first copies. n counts the peers that were asked
// before. ok is false if no peer should be asked.
func (d *Dataset) Holder(index sample.Index, n int) (address string, ok bool) {
	t := d.table.Load()
	if t == nil || t.homes == nil {
		return "", false
	}
	bin, name := d.bins(index), d.o.Manifest.NameHash(index)
	if p := &t.peers[t.homes.Home(bin)]; d.mayAsk(p) && p.threshold.Keeps(0, name) {
		if n == 0 {
			return p.address, true
		}
		n--
	}
	second, more := t.homes.Second(bin)
	if !more || n > 0 {
		return "", false
	}
	p := &t.peers[second]
	return p.address, d.mayAsk(p) && p.threshold.Keeps(1, name)
}

// mayAsk reports whether a peer can be asked for samples.
func (d *Dataset) mayAsk(p *remote) bool { return p.address != "" && !d.IsAside(p.address) }

// Kept returns about how many padded bytes a peer keeps by its threshold, and exactly for this machine; 0: it is in no roster.
func (d *Dataset) Kept(id cluster.CacheID, of homes.Threshold) uint64 {
	t := d.table.Load()
	if t == nil {
		return 0
	}
	at := slices.IndexFunc(t.roster.Peers, func(p cluster.RosterPeer) bool { return p.ID == id })
	switch {
	case at < 0:
		return 0
	case at == t.self:
		return t.part.Kept
	}
	return min(uint64(of.Float()*float64(t.shares[at])), d.bytes)
}

// Unassigned returns the padded bytes of samples that this machine held when the roster was made, and that the roster gives to others. notable reports
// whether they take a notable part of its room.
func (d *Dataset) Unassigned() (bytes uint64, notable bool) {
	t := d.table.Load()
	if t == nil {
		return 0, false
	}
	return t.part.Unassigned, isNotable(t.part.Unassigned, d.o.Room)
}
