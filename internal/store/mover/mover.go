// Package mover has the parts that move samples from one Logfile to the other: the shared memory with its slots, the fetcher, the
// reorder.Scan, and the memory that is registered with the I/O engine. A [Mover] has the sizes of its cache. The engine serves from one,
// and a sort without clients (package resort) also uses one.
//
// A Mover decides nothing: its caller chooses the segments to load, and the roles of the Logfiles. Its methods may be called concurrently
// unless they say otherwise.
package mover

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"unsafe"

	"lcache/chunker"
	"lcache/internal/disk/blockio"
	"lcache/internal/host"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

// Options of New. The zero value of each is the default.
type Options struct {
	SideBytes                                         int                                                       // of side memory; 0: by the memory formula
	BlockTimeout, LogTimeout, SourceTimeout, PeerTime time.Duration                                             // for tests: when a read counts as late
	PeerBytes                                         int                                                       // of memory for samples that are read for other machines
	Peers                                             fetch.Peers                                               // as in fetch.Options
	OnRead                                            func(from sample.Origin, index sample.Index, data []byte) // as in fetch.Options
	Awaited                                           func(staging.Segment) bool                                // as in staging.Options
}

// A Mover moves the samples of a cache. The write buffers of both Logfiles and of packages are registered with the I/O engine, and so is the
// scratch memory of a cache that compresses.
type Mover struct {
	Cache   *cache.Cache
	Staging *staging.Staging
	Fetcher *fetch.Fetcher
	Scan    *reorder.Scan

	buffers [logfile.PackagesNum + 1][]byte // by Logfile: the write buffers, registered
	scratch []byte                          // memory that compressed blocks are read to, registered; nil without compression
}

// New allocates memory by the cache's sizes, and starts the workers of the Scan. After an error nothing is allocated.
func New(c *cache.Cache, o Options) (m *Mover, err error) {
	z := c.Sizing
	m = &Mover{Cache: c}
	m.Staging, err = staging.New(staging.Options{Samples: c.Manifest.Len(), Align: c.Format.Align, Slots: z.Slots,
		SlotBytes: int(z.Slot), MissBytes: int(z.Miss), SideBytes: cmp.Or(o.SideBytes, int(z.Side)), SpareBytes: int(z.Spare), PeerBytes: o.PeerBytes, Lent: z.Lent, Awaited: o.Awaited})
	if err != nil {
		return nil, err
	}
	if err := c.IO.RegisterOnUse(m.Staging.Memory()); err != nil {
		m.Staging.Close()
		return nil, fmt.Errorf("register the shared memory: %w", err)
	}
	if err := m.makeScratch(); err != nil {
		m.Release()
		return nil, err
	}
	m.Fetcher = fetch.New(fetch.Options{Staging: m.Staging, Locations: c.Locations, Manifest: c.Manifest, Sums: c.Sums, Source: c.Source, Jobs: c.SourceJobs(),
		Form: c.Form, PackedBytes: int64(c.Facts().PackedReads()), Logfile: c.Logfile, Recovered: c.WasRecovered, OnRead: o.OnRead, Peers: o.Peers, Learn: c.LearnInode,
		LogTimeout: o.LogTimeout, SourceTimeout: o.SourceTimeout, PeerTime: o.PeerTime, Logger: c.Logger})
	m.Scan = reorder.New(reorder.Options{Store: c.Store, Staging: m.Staging, Fetcher: m.Fetcher, Locations: c.Locations, Sums: c.Sums, Sizes: c.Manifest.Sizes(),
		Form: c.Form, Scratch: m.scratch, Align: c.Format.Align, Block: c.Format.Block, InFlight: max(2, len(c.Dirs)*chunker.InFlight/c.Format.Block),
		Workers: max(2, min(4, host.Cores)), BlockTimeout: o.BlockTimeout, Logger: c.Logger})
	return m, nil
}

// makeScratch allocates the memory for compressed blocks of the scan.
func (m *Mover) makeScratch() error {
	if m.Cache.Form == nil {
		return nil
	}
	mem, err := blockio.Alloc(int(m.Cache.Sizing.Scratch))
	if err != nil {
		return err
	}
	if err := m.Cache.IO.RegisterOnUse(mem); err != nil {
		blockio.Free(mem)
		return fmt.Errorf("register scratch memory: %w", err)
	}
	m.scratch = mem
	return nil
}

// ScratchBytes returns the size of the scratch memory.
func (m *Mover) ScratchBytes() int64 { return int64(len(m.scratch)) }

// Register registers the write buffers of a Logfile, or of packages, with the I/O engine. Logfiles with the same number use the same buffers, unless a later one needs more.
func (m *Mover) Register(l *logfile.Logfile) error {
	have := &m.buffers[l.Num()]
	want := l.Buffers()
	if unsafe.SliceData(*have) == unsafe.SliceData(want) && len(*have) == len(want) {
		return nil
	}
	if *have != nil {
		if err := m.Cache.IO.Unregister(*have); err != nil {
			return err
		}
	}
	*have = want
	if len(want) == 0 {
		return nil
	}
	return m.Cache.IO.RegisterOnUse(want)
}

// Aim makes a log the target of the scan. Samples that its Logfile already has are not routed to it again. Tails from a clean stop are
// read back, all at once, before the scan needs them.
func (m *Mover) Aim(l *reorder.EpochLog) error {
	l.Log.ReadTailsBack()
	return l.Aim(func(index sample.Index) bool { return m.Cache.Locations.In(index, l.Log.Num()) })
}

// Discard drops a Logfile whose order this job does not have. Samples that only this Logfile has become misses.
func (m *Mover) Discard(l *logfile.Logfile) error {
	m.Cache.Logger.Info("the log was being sorted for an order that this job does not have; samples that are only there are read from the source again")
	num := l.Num()
	for i := range m.Cache.Manifest.Len() {
		if loc := m.Cache.Locations.Get(sample.Index(i)); m.Cache.Locations.In(sample.Index(i), num) {
			m.Cache.Locations.Clear(sample.Index(i), loc)
		}
	}
	return m.Cache.Store.Drop(num)
}

// Halt ends all loads and reads. After an error a device may still write to the shared memory, and the memory must not be freed.
func (m *Mover) Halt(ctx context.Context) error {
	err := m.Scan.Close(ctx)
	if fetchErr := m.Fetcher.Close(ctx); err == nil {
		err = fetchErr
	}
	return err
}

// Close halts the Mover and frees its memory. The cache stays open.
func (m *Mover) Close(ctx context.Context) error {
	if err := m.Halt(ctx); err != nil {
		return err
	}
	m.Release()
	return nil
}

// Release unregisters the memory from the I/O engine and frees it. Callers call Halt first.
func (m *Mover) Release() {
	for _, mem := range append([][]byte{m.Staging.Memory(), m.scratch}, m.buffers[:]...) {
		if len(mem) == 0 {
			continue
		}
		if err := m.Cache.IO.Unregister(mem); err != nil {
			m.Cache.Logger.Warn("unregister memory", "error", err)
		}
	}
	m.Free()
}

// Free frees the memory. Callers call Halt first, and close the I/O engine or unregister the memory.
func (m *Mover) Free() {
	if m.scratch != nil {
		blockio.Free(m.scratch)
		m.scratch = nil
	}
	m.Staging.Close()
}
