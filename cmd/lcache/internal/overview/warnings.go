package overview

import (
	"fmt"
	"strings"

	"lcache/internal/serve/status"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// deviceWarnings name failed devices, or another fault of the cache.
func deviceWarnings(c status.Cache) (lines []string) {
	for _, d := range c.Devices {
		switch d.State {
		case "normal":
			continue
		case "read-only":
			lines = append(lines, fmt.Sprintf("! %s is read-only (%s): lcache retries writing to it from time to time; check that disk", usage.Name(d.Dir), usage.Message(d.LastError)))
		default:
			lines = append(lines, fmt.Sprintf("! %s is quarantined (%s): its samples come from the source, and lcache retries it from time to time; check that disk", usage.Name(d.Dir), usage.Message(d.LastError)))
		}
	}
	if c.State != "" && c.State != "normal" && len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("! the cache is %s: samples come from the source; check the disk of %s", usage.Message(c.State), usage.Names(c.Dirs, ",")))
	}
	return lines
}

// Crowded is the warning about samples that belong to other machines.
func Crowded(c status.Cluster) string {
	return fmt.Sprintf("%s of samples that belong to other machines now take a part of this cache's room: if the machines stay as they are, stop the server, run lcache rm on the cache, and start again", units.Bytes(c.Unassigned))
}

// Warnings has a line, with advice, for each thing that needs the user's attention.
func (v View) Warnings() []string {
	s := v.Now
	if len(s.Jobs) == 0 {
		return nil
	}
	server, was := s.Jobs[0], s.Jobs[0] // the first entry has the figures of the server
	if len(v.Before.Jobs) > 0 {
		was = v.Before.Jobs[0]
	}
	lines := deviceWarnings(s.Cache)
	if s.Cluster.IsCrowded {
		lines = append(lines, "! "+Crowded(s.Cluster))
	}
	if server.CorruptSamples > 0 {
		lines = append(lines, fmt.Sprintf("! %s corrupt on disk, and read from the source instead: stop the server and run lcache verify --cache %s",
			units.Plural(server.CorruptSamples, "sample was", "samples were"), usage.ShellWord(strings.Join(s.Cache.Dirs, ","))))
	}
	if n := Skipped(s); n > 0 {
		lines = append(lines, fmt.Sprintf("! %s left out of batches, because the source could not supply them: the server's log names them; check %s", units.Plural(n, "sample was", "samples were"), usage.Name(server.Source)))
	}
	if n := server.SourceRetries - was.SourceRetries; n > 0 {
		lines = append(lines, fmt.Sprintf("! %s in the last seconds: check %s", units.Plural(n, "source retry", "source retries"), usage.Name(server.Source)))
	}
	if n := server.WriteErrors + server.ReadErrors + server.SyncErrors; n > 0 {
		lines = append(lines, fmt.Sprintf("! %s of the cache's disk: lost samples are read from the source; check the disk of %s",
			units.Plural(n, "error", "errors"), usage.Names(s.Cache.Dirs, ",")))
	}
	live, _ := ByLife(s.Jobs)
	for _, job := range live {
		of := ""
		if len(live) > 1 {
			of = JobName(job) + ": "
		}
		if d := job.FirstDivergence; d != nil {
			lines = append(lines, fmt.Sprintf("! %srequests differ from the planned order, first at epoch %d rank %d batch %d: samples are right but slower; ingest again with the recipe and seed of the training",
				of, d.Epoch, d.Rank, d.Batch))
		}
	}
	return lines
}

// Skipped returns how often a sample was left out of a batch.
func Skipped(s status.Document) int64 {
	n := int64(0)
	for _, j := range s.Jobs {
		n += j.SkippedSamples
	}
	return n
}
