package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/spf13/pflag"

	"lcache/attach"
	"lcache/cache"
	"lcache/cachedir"
	"lcache/devices"
	"lcache/ingest"
)

// factsOff is the value of --facts with which nothing is known of a disk.
const factsOff = "off"

func addFactsFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "facts", "", "what the disk gives: a `FILE` that lcache doctor --save wrote, or off: nothing is measured, and nothing kept is used (default: measured when a cache is made, and kept for each disk)")
}

// diskFrom returns how to find out what the devices of a cache give.
func diskFrom(facts string, io cache.IO) (ingest.Disk, error) {
	always := func(d cache.Disk) ingest.Disk {
		return func(context.Context, bool, []string) cache.Disk { return d }
	}
	switch facts {
	case "":
	case factsOff:
		return always(cache.Disk{Why: "--facts off"}), nil
	default:
		known, err := devices.FromFile(facts)
		return always(known), err
	}
	root, _, err := cachedir.DefaultRoot()
	if err != nil {
		return always(cache.Disk{Why: err.Error()}), nil
	}
	return devices.Store{Dir: filepath.Join(root, "devices"), Registry: attach.Dir(), IO: io, Logger: slog.New(slog.DiscardHandler)}.Disk, nil
}
