package engine

import (
	"bytes"
	"os"
	"strconv"

	"lcache/logfile"
)

// Memory says what the memory of a server is made of, in bytes. The first part is what Sizing plans: MemoryBytes of Status is its sum. The second part is
// what the kernel counts as resident, and RSS is its sum. The two differ: planned memory becomes resident when it is first touched; resident are also
// the program, its heap, orders, and the files that are mapped.
type Memory struct {
	Shared  int64 `json:"memory_shared_bytes"`  // slots, miss ring, side memory and spare part
	Buffers int64 `json:"memory_buffer_bytes"`  // write buffers of both Logfiles and of packages
	Scratch int64 `json:"memory_scratch_bytes"` // where compressed blocks are unpacked from
	Index   int64 `json:"memory_index_bytes"`   // tables with an entry for each sample

	RSS        int64 `json:"rss_bytes"`
	RSSShared  int64 `json:"rss_shared_bytes"`  // of the shared memory
	RSSFiles   int64 `json:"rss_file_bytes"`    // manifest, checksums and program: pages that the kernel may drop
	RSSPrivate int64 `json:"rss_private_bytes"` // buffers, scratch, index, orders and heap
}

// taken is the sum of what is planned.
func (m Memory) taken() int64 { return m.Shared + m.Buffers + m.Scratch + m.Index }

// memory is what the server takes now.
func (e *Engine) memory() Memory {
	m := Memory{Shared: e.staging.Parts(), Scratch: e.mover.ScratchBytes(), Index: e.indexBytes()}
	for half := range logfile.PackageHalf + 1 {
		if l := e.cache.Logfile(half); l != nil {
			m.Buffers += int64(len(l.Buffers()))
		}
	}
	e.mu.Lock()
	for _, p := range e.states {
		if p.packs != nil {
			m.Buffers += int64(p.packs.plan.queue + p.packs.plan.buffer)
		}
	}
	e.mu.Unlock()
	text, err := os.ReadFile("/proc/self/status")
	if err == nil {
		m.resident(text)
	}
	return m
}

// resident reads what the kernel counts. Without /proc the fields stay 0: not known.
func (m *Memory) resident(status []byte) {
	for _, f := range []struct {
		name string
		to   *int64
	}{{"RssAnon:", &m.RSSPrivate}, {"RssFile:", &m.RSSFiles}, {"RssShmem:", &m.RSSShared}} {
		_, rest, found := bytes.Cut(status, []byte("\n"+f.name))
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
