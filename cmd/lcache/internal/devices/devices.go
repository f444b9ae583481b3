// Package devices measures the devices below caches and keeps the results, for the choice of a layout.
//
// A Store keeps the facts of each device in a file of its own, with the time of the measurement and the identity of the file system. Known looks them up, and
// Measure measures a device that has none: quickly, and only while no server of this user is on it. FromFile takes what lcache doctor saved. All give a
// [cache.Disk], with the devices of a cache added up, or the reason why nothing is known. Functions may be called concurrently.
package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/disk/durable"
	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/plan"
	"lcache/internal/store/cache"
	"lcache/internal/trust"
)

// A Store is a folder of facts.
type Store struct {
	Dir      string // of the files
	Registry string // folder of this user's servers: see package attach
	Engine   string // that measures: as in blockio.Options
	Logger   *slog.Logger
}

// facts is the file of one device.
type facts struct {
	Schema   int             `json:"schema"`
	Identity doctor.Identity `json:"identity"`
	Device   doctor.Device   `json:"device"`
}

// Disk returns the known facts of the devices below a cache's directories. If measure is true, it measures the unknown devices, until ctx ends.
func (s Store) Disk(ctx context.Context, measure bool, dirs []string) cache.Disk {
	var known []doctor.Device
	seen := map[string]bool{}
	for _, dir := range dirs {
		id, err := doctor.Identify(dir)
		if err != nil {
			return cache.Disk{Why: err.Error()}
		}
		if seen[id.FileSystem] {
			continue
		}
		seen[id.FileSystem] = true
		dev, err := s.read(id)
		if errors.Is(err, fs.ErrNotExist) && measure {
			dev, err = s.measure(ctx, dir, id)
		}
		switch {
		case errors.Is(err, context.Canceled):
			return cache.Disk{Why: "there was too little to read, or no time"}
		case errors.Is(err, fs.ErrNotExist):
			return cache.Disk{Why: "that is done when a cache is made, or by lcache doctor --cache DIR --save FILE for --facts FILE"}
		case err != nil:
			return cache.Disk{Why: err.Error()}
		}
		known = append(known, *dev)
	}
	return sum(known)
}

// mostFacts bounds the size of a file of facts, in bytes.
const mostFacts = 1 << 20

func (s Store) path(id doctor.Identity) string { return filepath.Join(s.Dir, id.FileSystem+".json") }

// read returns the facts of a device. It returns fs.ErrNotExist if there are none, if they describe another device that had the same number, or if an earlier
// lcache measured the page cache, under LCACHE_DIRECT=0.
func (s Store) read(id doctor.Identity) (*doctor.Device, error) {
	err := trust.Dir(s.Dir)
	var text []byte
	if err == nil {
		text, err = trust.ReadFile(s.path(id), mostFacts)
	}
	if untrusted := new(trust.Error); errors.As(err, &untrusted) {
		return nil, fmt.Errorf("%s: remove it, and it is made again", untrusted.Reason())
	}
	if err != nil {
		return nil, err
	}
	var f facts
	if err := jsonbytes.Unmarshal(text, &f); err != nil || f.Schema != 1 || !same(f.Identity, id) || !f.Device.Direct || f.Device.Read <= 0 {
		return nil, fs.ErrNotExist
	}
	return &f.Device, nil
}

// same reports whether two identities belong to one file system. Its size may have changed a little, as on ZFS.
func same(a, b doctor.Identity) bool {
	return a.FileSystem == b.FileSystem && a.Block == b.Block && a.Bytes <= b.Bytes+b.Bytes/10 && b.Bytes <= a.Bytes+a.Bytes/10
}

// measure measures a device and keeps the result. If the folder cannot be written, the next cache measures again.
func (s Store) measure(ctx context.Context, dir string, id doctor.Identity) (*doctor.Device, error) {
	if pid := s.inUse(id); pid != 0 {
		return nil, fmt.Errorf("the server of process %d uses it", pid)
	}
	dev, err := doctor.Quick(ctx, doctor.QuickOptions{Dir: dir, Engine: s.Engine, Logger: s.Logger})
	if err != nil {
		return nil, err
	}
	text, err := jsonbytes.MarshalIndent(facts{1, id, *dev}, "", "  ")
	if err == nil {
		err = os.MkdirAll(s.Dir, 0o700)
	}
	if err == nil {
		err = durable.ReplaceFile(s.path(id), append(text, '\n'))
	}
	if err != nil && s.Logger != nil {
		s.Logger.Warn("cannot keep the measurement of the disk", "dir", dir, "err", err)
	}
	return dev, nil
}

// inUse returns the process of a server of this user on a device; 0: there is none.
func (s Store) inUse(id doctor.Identity) int {
	servers, err := attach.Registered(s.Registry)
	if err != nil {
		return 0 // then no server could be registered either
	}
	for _, server := range servers {
		for _, dir := range server.Cache {
			if other, err := doctor.Identify(dir); err == nil && other.FileSystem == id.FileSystem {
				return server.PID
			}
		}
	}
	return 0
}

// sum adds up the devices of one cache, whose blocks are dealt over all of them.
func sum(known []doctor.Device) cache.Disk {
	var l plan.DiskLine
	oldest, combined, operations := time.Time{}, true, true
	for i, d := range known {
		l.ReadBPS, l.WriteBPS, l.CombinedBPS = l.ReadBPS+d.Read, l.WriteBPS+d.Write, l.CombinedBPS+d.CombinedCap
		l.ReadIOPS, l.WriteIOPS, l.CombinedIOPS = l.ReadIOPS+d.IOPS, l.WriteIOPS+d.WriteIOPS, l.CombinedIOPS+d.CombinedOps
		l.Mix, l.OpBytes = max(l.Mix, d.Mix), float64(d.OpBytes)
		combined, operations = combined && d.CombinedCap > 0, operations && d.CombinedOps > 0
		if i == 0 || d.When.Before(oldest) {
			oldest = d.When
		}
	}
	if combined {
		l.Mix = 0 // the combined limit says it all
	} else {
		l.CombinedBPS = 0
	}
	if !operations {
		l.CombinedIOPS = 0
	}
	return cache.Disk{Line: l, From: "measured on " + oldest.Format("2 Jan 2006")}
}

// FromFile returns the facts in a document of lcache doctor --save. Directories on one device have exactly the same figures and count once.
func FromFile(path string) (cache.Disk, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return cache.Disk{}, fmt.Errorf("read the facts: %w", err)
	}
	var report doctor.Report
	if err := jsonbytes.Unmarshal(text, &report); err != nil {
		return cache.Disk{}, fmt.Errorf("read the facts in %s: %w; make them again with lcache doctor --cache DIR --save FILE", path, err)
	}
	var known []doctor.Device
	seen := map[[3]float64]bool{}
	if report.Facts != nil {
		for _, p := range report.Facts.Places {
			d := p.Device
			if d == nil || d.Read <= 0 || seen[[3]float64{d.Read, d.BothRead, d.IOPS}] {
				continue
			}
			seen[[3]float64{d.Read, d.BothRead, d.IOPS}] = true
			known = append(known, *d)
		}
	}
	if len(known) == 0 {
		return cache.Disk{}, errcode.Errorf(errcode.InputFile, "%s says nothing of a disk: make it again with lcache doctor --cache DIR --save FILE", path)
	}
	d := sum(known)
	d.From = strings.TrimSpace(d.From + ", by " + filepath.Base(path))
	return d, nil
}
