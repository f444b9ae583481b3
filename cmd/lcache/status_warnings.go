package main

import (
	"fmt"
	"strings"

	"lcache/internal/serve/status"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// deviceWarnings name the devices that have failed, or another fault of the cache.
func deviceWarnings(c status.Cache) (lines []string) {
	for _, d := range c.Devices {
		switch d.State {
		case "normal":
			continue
		case "read-only":
			lines = append(lines, fmt.Sprintf("! %s takes no new blocks (%s): it is tried again from time to time; look at that disk", usage.Name(d.Dir), usage.Message(d.LastError)))
		default:
			lines = append(lines, fmt.Sprintf("! %s is put aside (%s): its samples come from the source, and it is tried again from time to time; look at that disk", usage.Name(d.Dir), usage.Message(d.LastError)))
		}
	}
	if c.State != "" && c.State != "normal" && len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("! the cache is %s: samples come from the source; look at the disk of %s", usage.Message(c.State), usage.Names(c.Dirs, ",")))
	}
	return lines
}

// warnings has a line for each thing that the user should look at, with advice.
func (v view) warnings() []string {
	s := v.now
	if len(s.Jobs) == 0 {
		return nil
	}
	server, was := s.Jobs[0], s.Jobs[0] // the first entry has the figures of the server
	if len(v.before.Jobs) > 0 {
		was = v.before.Jobs[0]
	}
	lines := deviceWarnings(s.Cache)
	if server.CorruptSamples > 0 {
		lines = append(lines, fmt.Sprintf("! %s corrupt on disk, read from the source instead: stop the server and run lcache verify --cache %s",
			units.Plural(server.CorruptSamples, "sample was", "samples were"), usage.ShellWord(strings.Join(s.Cache.Dirs, ","))))
	}
	if n := skipped(s); n > 0 {
		lines = append(lines, fmt.Sprintf("! %s left out of batches, as the source could not give them: the server's log says which; look at %s", units.Plural(n, "sample was", "samples were"), usage.Name(server.Source)))
	}
	if n := server.SourceRetries - was.SourceRetries; n > 0 {
		lines = append(lines, fmt.Sprintf("! %s just now: look at %s", units.Plural(n, "source retry", "source retries"), usage.Name(server.Source)))
	}
	if n := server.WriteErrors + server.ReadErrors + server.SyncErrors; n > 0 {
		lines = append(lines, fmt.Sprintf("! %s of the cache's disk: what is lost is read from the source; look at the disk of %s",
			units.Plural(n, "error", "errors"), usage.Names(s.Cache.Dirs, ",")))
	}
	live, _ := byLife(s.Jobs)
	for _, job := range live {
		of := ""
		if len(live) > 1 {
			of = jobName(job) + ": "
		}
		if d := job.FirstDivergence; d != nil {
			lines = append(lines, fmt.Sprintf("! %sanother order than planned is asked for, first at epoch %d rank %d batch %d: the right samples, but slowly; ingest again with the recipe and seed of the training",
				of, d.Epoch, d.Rank, d.Batch))
		}
	}
	return lines
}
