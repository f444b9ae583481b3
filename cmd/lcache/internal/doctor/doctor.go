// Package doctor measures the disks, memory and kernel settings that a machine offers to a cache, and advises how to improve them.
//
// Look collects Facts: about the kernel, memory, each cache directory, and the device below it, which is measured with the same direct I/O
// as the log uses. Read measures how fast a user's own files can be read without lcache. Facts.Checks and Facts.Advise are pure functions
// from facts to findings and advice. Examine does all of this and returns a Report, which can be saved. A Disk is one open measurement, for
// callers that need a single rate. The package changes no setting and reads no cache. It leaves no file behind: its one file has no name
// while it is used.
//
// Functions may be called concurrently, though two measurements of one device spoil each other; a Disk has one user at a time.
package doctor

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/host"
)

// Options of Look.
type Options struct {
	Dirs     []string           // of a cache; they need not exist yet
	Engine   string             // as in blockio.Options
	NoDevice bool               // measure no device
	Progress func(stage string) // called when a stage begins; may be nil
	Logger   *slog.Logger
}

// Facts describe one machine at one time. Sizes are in bytes, rates in bytes or operations a second.
type Facts struct {
	When    time.Time `json:"when"`
	Kernel  string    `json:"kernel"`
	CPUs    int       `json:"cpus"`
	Ring    Ring      `json:"io_uring"`
	Locked  Locked    `json:"memlock"`
	Memory  Memory    `json:"memory"`
	Huge    Huge      `json:"huge_pages"`
	Places  []Place   `json:"places"`
	Reading *Reading  `json:"reading,omitempty"` // of a source; nil: none was given
}

// Look collects the facts. Its only error is the context's: a fact that can't be had is noted as such.
func Look(ctx context.Context, o Options) (*Facts, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	root := os.DirFS("/")
	f := &Facts{When: time.Now().Round(time.Second), Kernel: kernel(), CPUs: host.Cores}
	o.Progress("reading kernel and memory settings")
	f.Ring = lookAtRing(root, o)
	f.Locked = lookAtLocked(root)
	f.Memory = lookAtMemory(root)
	f.Huge = lookAtHuge(root)
	measured := map[uint64]*Device{}
	for _, dir := range o.Dirs {
		p := lookAtPlace(root, dir)
		switch twin := measured[p.ID]; {
		case o.NoDevice:
		case p.wrong() != "":
			p.NoDevice = p.wrong()
		case twin != nil:
			p.Device = twin // the same device, measured once
		default:
			dev, err := p.measure(ctx, o)
			if err != nil {
				p.NoDevice = err.Error()
			} else {
				p.Device, measured[p.ID] = dev, dev
			}
		}
		f.Places = append(f.Places, p)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// measure measures the device below a place.
func (p *Place) measure(ctx context.Context, o Options) (dev *Device, err error) {
	o.Progress("measuring the device of " + p.Dir)
	d, err := OpenDisk(ctx, DiskOptions{Dir: p.Seen, Engine: o.Engine, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Device(ctx, func(stage string) { o.Progress("measuring the device of " + p.Dir + ": " + stage) })
}

// LogRate returns the rates of all devices together, in bytes a second: reorder is read and at the same time written, read is read alone.
// A device with several directories counts once. ok is false if a device was not measured.
func (f *Facts) LogRate() (reorder, read float64, ok bool) {
	var seen []uint64
	for _, p := range f.Places {
		if p.Device == nil {
			return 0, 0, false
		}
		if slices.Contains(seen, p.ID) {
			continue
		}
		seen = append(seen, p.ID)
		reorder += min(p.Device.BothRead, p.Device.BothWrite)
		read += p.Device.Read
	}
	return reorder, read, len(seen) > 0
}

// kernel returns the kernel's release; "": not known.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// readText returns a small file of /proc or /sys without its line end, or "" if the file does not exist.
func readText(root fs.FS, path string) string {
	b, err := fs.ReadFile(root, path)
	if err != nil {
		return ""
	}
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return string(b)
}
