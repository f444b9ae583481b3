package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"lcache/sample"
)

// lines are log messages.
type lines struct {
	mu sync.Mutex // guards the field that follows
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// TestClusterOlderCache: a machine filled its cache when it was alone. In a cluster it announces what it holds of its part, and nothing for which it has no
// room; it says once that samples of other machines take its room.
func TestClusterOlderCache(t *testing.T) {
	d := makeDataset(t, 1500, fileSizes)
	var logged lines
	j := samplerJob(9, 16, 3, true)
	f := newFleet(t, d, j, 3, d.total*36/100+3<<20, func(machine int, o *Options) {
		if machine == 0 {
			o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		}
	})
	defer f.close(t)
	m := f.machines[0]
	for _, other := range f.machines[1:] {
		f.stop(t, other)
	}
	f.stop(t, m)
	f.start(t, m) // a server that knows nothing of the others
	f.meet()
	var all []sample.Index
	for i := range sample.Index(1500) {
		all = append(all, i)
	}
	for len(all) > 0 {
		n := min(len(all), 50)
		extents, _, err := m.fetcher.FetchAll(t.Context(), all[:n])
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range extents {
			m.staging.Drop(x)
		}
		all = all[n:]
	}
	for _, other := range f.machines[1:] {
		f.start(t, other)
	}
	const warning = "belong to other machines"
	if n := logged.count(warning); n != 0 {
		t.Errorf("%d warnings of a machine alone", n)
	}
	for range 2 {
		f.meet()
	}
	unassigned, notable := m.data.Unassigned()
	if !notable || unassigned < m.share.Room/3 || logged.count(warning) != 1 {
		t.Errorf("%d bytes of a room of %d are unassigned, notable: %v, %d warnings; want two thirds, and one warning", unassigned, m.share.Room, notable, logged.count(warning))
	}
	left, lacks := m.share.Left(), uint64(0)
	for i := range sample.Index(1500) {
		if m.data.Keeps(i) && !m.share.Held(i) {
			lacks += m.share.Padded(m.share.Manifest.Size(i))
		}
	}
	if lacks > left+m.share.Room/100 {
		t.Errorf("it says that it keeps %d bytes which it lacks, and has room for %d", lacks, left)
	}
	if float := m.offer.Threshold.Float(); float < 0.2 || float > 0.6 {
		t.Errorf("it announces %.2f", float)
	}
	f.read(t, 0)
	before := f.sourceReads()
	f.read(t, 1)
	t.Logf("threshold %.3f, left %d, lacks %d, %d reads of the source in the second epoch", m.offer.Threshold.Float(), left, lacks, f.sourceReads()-before)
	was := m.offer.Threshold
	f.stop(t, m)
	f.start(t, m) // what it announces is the same after a restart
	f.meet()
	if now := m.offer.Threshold; now != was {
		t.Errorf("it announces %#x after a restart, and %#x before", now, was)
	}
}
