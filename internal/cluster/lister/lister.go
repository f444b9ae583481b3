// Package lister makes one machine of a cluster list a source for all.
//
// Machines that want the listing of a source offer its [Key] to the cluster. The one with the lowest name lists it; the others wait, and get the manifest
// from any machine that has it. If the lister is lost, or makes no progress for [Patience], the next one lists. So the list of a bucket or a shared
// file system is read once, not by each machine. A machine without others lists at once.
//
// The decision is a pure function (decide.go). The manifest travels by package peer, under a fingerprint that is made of the key.
package lister

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/cluster"
	"lcache/internal/cluster/homes"
	"lcache/internal/peer"
	"lcache/internal/trust"
	"lcache/sample"
)

// Times of a Lister.
const (
	Offered  = 10 * time.Minute // for which a listing is given to others: the source may change, and they list it again
	Patience = 30 * time.Second // with a lister that makes no progress
	settle   = time.Second      // for other machines to be seen, before this one lists
	gather   = 5 * time.Second  // for the expected number of machines
	handOver = 60 * time.Second // that HandOver waits for machines that still want the listing
	look     = 250 * time.Millisecond
)

// MostManifest bounds a manifest from another machine, in bytes: that of about 100 million samples.
const MostManifest = 8 << 30

// A Key names a listing: the source as it is written, and all options that change the listing.
type Key struct{ print sample.Fingerprint }

// KeyOf returns the key of a listing with the given properties.
func KeyOf(properties string) Key {
	sum := sha256.Sum256([]byte("lcache listing\x00" + properties))
	var k Key
	copy(k.print[:], sum[:])
	return k
}

func (k Key) dataset() cluster.DatasetKey { return cluster.DatasetKey(k.print[:8]) }

// A Lister takes part for one process. All methods may be called concurrently.
type Lister struct {
	Member *cluster.Member
	Server *peer.Server
	Client peer.ClientOptions
	Expect int // machines of the cluster; 0: unknown
	Logger *slog.Logger

	mu   sync.Mutex // guards the fields that follow
	held map[Key]*listing
	made map[Key]homes.Threshold // when the listings were made that this process got from others, as in their offers
}

// listing is a manifest that this process offers to others.
type listing struct {
	manifest  []byte
	expires   *time.Timer
	since     time.Time
	isOffered bool // Listed has ended
}

// Await waits until another machine has listed a source, and writes that manifest to a file. It returns false if this machine should list the source; it
// then calls Listed, or Withdraw. fits returns an error if there is no room for a manifest. waits receives what Await waits for.
func (l *Lister) Await(ctx context.Context, k Key, path string, fits func(bytes uint64) error, waits func(host string, samples int64)) (fetched bool, err error) {
	began := time.Now()
	if err := l.offer(k, flagWants, 0); err != nil {
		return false, err
	}
	client := peer.NewClient(k.print, 1, l.Client)
	defer client.Close()
	s := state{expect: l.Expect, began: began, since: map[string]progress{}, bad: map[string]time.Time{}}
	timer := time.NewTicker(look)
	defer timer.Stop()
	for {
		v := l.Member.View()
		switch d := s.decide(time.Now(), l.Member.Name(), v.Datasets[k.dataset()].Peers); d.what {
		case list:
			return false, nil
		case fetch:
			if err = receive(ctx, client, d.from.Data, path, fits); err == nil {
				l.mu.Lock()
				if l.made == nil {
					l.made = map[Key]homes.Threshold{}
				}
				l.made[k] = d.from.Threshold
				l.mu.Unlock()
				return true, nil
			}
			l.Logger.Warn("the listing of another machine can't be used", "host", d.from.Host, "error", err)
			s.bad[d.from.Member] = time.Now()
		case wait:
			if d.from.Host != "" {
				waits(d.from.Host, int64(d.from.Threshold))
			}
		}
		select {
		case <-ctx.Done():
			l.Withdraw(k)
			return false, ctx.Err()
		case <-timer.C:
		}
	}
}

// Progress tells the others how many samples this machine has listed so far.
func (l *Lister) Progress(k Key, samples int64) {
	_ = l.offer(k, flagWants, homes.Threshold(min(max(samples, 0), int64(homes.One)))) // Await has reported the error
}

// receive reads a manifest from a machine, and writes it to a file.
func receive(ctx context.Context, c *peer.Client, address, path string, fits func(bytes uint64) error) (err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := trust.Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	isFirst := true
	return c.Manifest(ctx, address, 0, MostManifest, func(total uint64, b []byte) error {
		if isFirst {
			isFirst = false
			if err := fits(total); err != nil {
				return err
			}
		}
		_, err := f.Write(b)
		return err
	})
}

// Listed offers a manifest to the machines that wait for it, until Close. The file may be renamed afterwards, or replaced. If several machines have one,
// the newest listing is taken: one that was made by --relist wins over the listing before it.
func (l *Lister) Listed(k Key, path string) error {
	f, err := trust.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size == 0 {
		return fmt.Errorf("%s is empty", path)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map %s: %w", path, err)
	}
	l.mu.Lock()
	if l.held == nil {
		l.held = map[Key]*listing{}
	}
	made, isFetched := l.made[k]
	if !isFetched {
		made = homes.Threshold(time.Now().Unix())
	}
	delete(l.made, k)
	old := l.held[k]
	held := &listing{manifest: b, expires: time.AfterFunc(Offered, func() { l.Withdraw(k) }), since: time.Now()}
	l.held[k] = held
	l.mu.Unlock()
	l.drop(k, old)
	if !l.Server.Add(k.print, home{b}) {
		return fmt.Errorf("the listing is offered already")
	}
	if err := l.offer(k, flagHas, made); err != nil {
		return err
	}
	l.mu.Lock()
	held.isOffered = true
	l.mu.Unlock()
	return nil
}

// drop ends the use of a manifest.
func (l *Lister) drop(k Key, old *listing) {
	if old != nil {
		old.expires.Stop()
		l.Server.Remove(k.print)
		_ = unix.Munmap(old.manifest)
	}
}

// Withdraw ends this machine's part in a listing.
func (l *Lister) Withdraw(k Key) {
	l.mu.Lock()
	old := l.held[k]
	delete(l.held, k)
	l.mu.Unlock()
	l.Member.Withdraw(k.dataset(), l.id())
	l.drop(k, old)
}

// Yield withdraws a listing, so that the process has room for another offer: the oldest that no machine waits for, or else the oldest. It returns false if
// there is none.
func (l *Lister) Yield() bool {
	var which Key
	var oldest *listing
	l.mu.Lock()
	wanted := l.wanted()
	for k, h := range l.held {
		if h.isOffered && (oldest == nil || wanted[which] && !wanted[k] || wanted[which] == wanted[k] && h.since.Before(oldest.since)) {
			which, oldest = k, h
		}
	}
	l.mu.Unlock()
	if oldest != nil {
		l.Withdraw(which)
	}
	return oldest != nil
}

// HandOver waits until no machine wants one of this machine's listings any longer, but not for long. A process that ends after it has listed calls it.
func (l *Lister) HandOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	timer := time.NewTicker(look)
	defer timer.Stop()
	for l.isWanted() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// isWanted reports whether a machine waits for a listing that this one has.
func (l *Lister) isWanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wanted()) > 0
}

// wanted returns the listings of this machine that another one waits for. l.mu is held.
func (l *Lister) wanted() map[Key]bool {
	all := map[Key]bool{}
	v := l.Member.View()
	for k := range l.held {
		if slices.ContainsFunc(v.Datasets[k.dataset()].Peers, func(p cluster.PeerView) bool { return p.State == cluster.PeerOK && !p.Self && p.Flags&flagWants != 0 }) {
			all[k] = true
		}
	}
	return all
}

// Close ends this machine's part in all listings. The Server must not be closed before.
func (l *Lister) Close() {
	l.mu.Lock()
	held := l.held
	l.held = nil
	l.mu.Unlock()
	for k, old := range held {
		l.Member.Withdraw(k.dataset(), l.id())
		l.drop(k, old)
	}
}

// id stands for this process where a cache's identity is expected.
func (l *Lister) id() (id cluster.CacheID) {
	sum := sha256.Sum256([]byte(l.Member.Name()))
	copy(id[:], sum[:])
	return id
}

func (l *Lister) offer(k Key, flags uint8, t homes.Threshold) error {
	return l.Offer(cluster.Offer{Dataset: k.dataset(), Cache: l.id(), Threshold: t, Flags: flags})
}

// Offer is Offer of the Member. If there is no room, listings give way.
func (l *Lister) Offer(o cluster.Offer) error {
	for {
		err := l.Member.Offer(o)
		if err == nil || !l.Yield() {
			return err
		}
	}
}

// home gives a manifest to peers. It has no samples.
type home struct{ manifest []byte }

func (home) Samples() int                                                { return 0 }
func (home) Size(sample.Index) int                                       { return 0 }
func (home) Bring(context.Context, []sample.Index, func(b peer.Brought)) {}
func (home) Work() (uint64, bool)                                        { return 0, false }
func (h home) Manifest() []byte                                          { return h.manifest }
