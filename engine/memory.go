package engine

import (
	"bytes"
	"os"
	"strconv"

	"lcache/internal/serve/status"
	"lcache/logfile"
)

// memory returns the server's current memory use.
func (e *Engine) memory() status.Memory {
	m := status.Memory{Shared: e.staging.Parts(), Scratch: e.mover.ScratchBytes(), Index: e.indexBytes()}
	for num := range logfile.PackagesNum + 1 {
		if l := e.cache.Logfile(num); l != nil {
			m.Buffers += int64(len(l.Buffers()))
		}
	}
	e.mu.Lock()
	for _, p := range e.states {
		m.Buffers += p.packs.Buffers()
	}
	e.mu.Unlock()
	text, err := os.ReadFile("/proc/self/status")
	if err == nil {
		fillResident(&m, text)
	}
	return m
}

// fillResident parses /proc/self/status. If that fails the fields stay 0, which means unknown.
func fillResident(m *status.Memory, text []byte) {
	for _, f := range []struct {
		name string
		to   *int64
	}{{"RssAnon:", &m.RSSPrivate}, {"RssFile:", &m.RSSFiles}, {"RssShmem:", &m.RSSShared}} {
		_, rest, found := bytes.Cut(text, []byte("\n"+f.name))
		words := bytes.Fields(rest[:min(len(rest), 64)])
		if !found || len(words) < 2 || string(words[1]) != "kB" {
			continue
		}
		if kib, err := strconv.ParseInt(string(words[0]), 10, 50); err == nil {
			*f.to = kib << 10
		}
	}
	m.RSS = m.RSSPrivate + m.RSSFiles + m.RSSShared
}

// indexBytes returns the size of the tables with an entry for each sample: location and address; the order, the segments and the arrival list of both
// epoch layouts; and the next epoch's layout. It leaves out the orders that chunks are cut from, because pushed ones are in the account.
func (e *Engine) indexBytes() int64 {
	n := e.cache.Locations.Bytes() + 4*int64(e.cache.Manifest.Len())
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.logs {
		if l.Layout != nil {
			n += 4 * int64(len(l.Layout.Order)+len(l.Layout.Segment)+len(l.Layout.Order))
		}
	}
	for _, l := range e.layouts {
		n += 4 * int64(len(l.layout.Order)+len(l.layout.Segment))
	}
	return n
}

// bytesEach returns the memory for tables and orders, in bytes per sample.
func (e *Engine) bytesEach() float64 {
	if e.cache.Manifest.Len() == 0 {
		return 0
	}
	return float64(e.indexBytes()+e.cache.Schedule.Bytes()) / float64(e.cache.Manifest.Len())
}
