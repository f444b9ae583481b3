package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/devices"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/cmd/lcache/internal/planner"
	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
)

// factsOff is the value of --facts with which nothing is known of a disk.
const factsOff = "off"

// diskFlags are the flags for the speed and the write rating of the disk.
type diskFlags struct{ facts, endurance string }

func addDiskFlags(f *pflag.FlagSet, to *diskFlags) {
	f.StringVar(&to.endurance, "endurance", "", "write rating of the drives: `3DWPD` (drive writes per day) or 1400TBW")
	f.StringVar(&to.facts, "facts", "", "disk speeds: `FILE` saved by lcache doctor, or off (default: measured once)")
}

// disk returns a function that finds the speed and the write rating of a cache's devices.
func (o diskFlags) disk(io cache.IO) (ingest.Disk, error) {
	find, err := o.find(io)
	if err != nil {
		return nil, err
	}
	var endurance planner.Endurance
	if o.endurance != "" {
		if endurance, err = planner.ParseEndurance(o.endurance); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, isNew bool, dirs []string) cache.Disk {
		d := find(ctx, isNew, dirs)
		d.DriveBytes = driveBytes(dirs)
		d.WearPerDay = endurance.PerDay(d.DriveBytes)
		return d
	}, nil
}

// driveBytes is the size of the file systems that directories are on; 0: not known.
func driveBytes(dirs []string) (sum float64) {
	seen := map[string]bool{}
	for _, dir := range dirs {
		id, err := doctor.Identify(dir)
		if err != nil {
			return 0
		}
		if !seen[id.FileSystem] {
			seen[id.FileSystem] = true
			sum += float64(id.Bytes)
		}
	}
	return sum
}

func (o diskFlags) find(io cache.IO) (ingest.Disk, error) {
	always := func(d cache.Disk) ingest.Disk {
		return func(context.Context, bool, []string) cache.Disk { return d }
	}
	switch o.facts {
	case "":
	case factsOff:
		return always(cache.Disk{Why: "--facts off"}), nil
	default:
		known, err := devices.FromFile(o.facts)
		return always(known), err
	}
	root, _, err := cachedir.DefaultRoot()
	if err != nil {
		return always(cache.Disk{Why: err.Error()}), nil
	}
	return devices.Store{Dir: filepath.Join(root, "devices"), Registry: attach.Dir(), Engine: io.Engine, Logger: slog.New(slog.DiscardHandler)}.Disk, nil
}
