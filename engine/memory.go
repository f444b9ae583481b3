package engine

import (
	"bytes"
	"os"
	"strconv"

	"lcache/internal/serve/status"
	"lcache/logfile"
)

// memory is what the server takes now.
func (e *Engine) memory() status.Memory {
	m := status.Memory{Shared: e.staging.Parts(), Scratch: e.mover.ScratchBytes(), Index: e.indexBytes()}
	for half := range logfile.PackageHalf + 1 {
		if l := e.cache.Logfile(half); l != nil {
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

// fillResident parses /proc/self/status. Without it the fields stay 0, which means unknown.
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

// indexBytes is what the tables with an entry for each sample take: place and address; for each of the two lines its order, its segments and its
// arrival list; and the line after them. Orders that chunks are cut from are not among them: pushed ones are in the account.
func (e *Engine) indexBytes() int64 {
	n := e.cache.Locations.Bytes() + 4*int64(e.cache.Manifest.Len())
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.logs {
		if l.Line != nil {
			n += 4 * int64(len(l.Line.Order)+len(l.Line.Segment)+len(l.Line.Order))
		}
	}
	for _, l := range e.layouts {
		n += 4 * int64(len(l.line.Order)+len(l.line.Segment))
	}
	return n
}

// bytesEach is what index and orders take together, a sample.
func (e *Engine) bytesEach() float64 {
	if e.cache.Manifest.Len() == 0 {
		return 0
	}
	return float64(e.indexBytes()+e.cache.Schedule.Bytes()) / float64(e.cache.Manifest.Len())
}
