package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestMemoryOfImportance: under each policy bytes are right, the counters add up, and memory stays within the requested size.
func TestMemoryOfImportance(t *testing.T) {
	testenv.WithoutRace(t)
	for k, policy := range []string{"next-use", "paper", "lru", "minio"} {
		for _, method := range testenv.One([]string{"impact", "shade"}, k) {
			t.Run(policy+" "+method, func(t *testing.T) {
				inLayouts(t, func(t *testing.T, layout string) { testMemoryOfImportance(t, layout, policy, method) })
			})
		}
	}
}

func testMemoryOfImportance(t *testing.T, layout, policy, method string) {
	d, o := small(t, schedule.Job{})
	o.Layout, o.Patience, o.Memory = layout, 20*time.Second, 64<<20
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	size := d.total / 5
	l.ask(t, 0, fmt.Sprintf(`{"method":%q,"policy":%q,"batch_size":16,"cache":%d,"lag":0,"seed":5,"params":{%s}}`, method, policy, size, map[string]string{"impact": `"s_share":0`}[method]))
	delivered := 0
	for _, order := range l.epochs(t, 0, 4) {
		delivered += len(order)
	}
	s := e.Status().Jobs[0].Importance
	if s.Requested != int64(delivered) || s.HHits+s.LogHits+s.SourceMisses != s.Requested {
		t.Errorf("%d requested, %d delivered: %+v", s.Requested, delivered, s)
	}
	if s.HBytes > size || s.HBytes < size/2 {
		t.Errorf("%d bytes are kept, of %d", s.HBytes, size)
	}
	if s.HHits == 0 && policy != "lru" || s.SourceMisses != 0 {
		t.Errorf("%d hits, %d from the source", s.HHits, s.SourceMisses)
	}
	if layout == cache.LayoutStatic && s.HHits > 0 {
		kept := 0
		for i := range d.bytes { // the first supplier has the samples that the counters report, with the right bytes
			buf := make([]byte, len(d.bytes[i]))
			if p := e.states["default"]; p.high.Held().Copy(sample.Index(i), buf) {
				if kept++; !bytes.Equal(buf, d.bytes[i]) {
					t.Fatalf("sample %d has other bytes in memory", i)
				}
			}
		}
		if kept == 0 {
			t.Error("nothing is kept")
		}
	}
}

// TestTooMuchMemory: if memory leaves no room for a cache, the error names the --memory that it needs. No job takes memory of another one.
func TestTooMuchMemory(t *testing.T) {
	d, o := small(t, schedule.Job{})
	o.Memory = 32 << 20
	e := open(t, o)
	left := e.spareMemory()
	_, err := e.Importance(t.Context(), 0, 0, "run", []byte(`{"method":"shade","batch_size":16,"cache":"1GiB"}`))
	need := int64(e.cache.Sizing.Memory) + 1<<30
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("--memory %d or more", need)) {
		t.Errorf("%v, want the memory of %d", err, need)
	}
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, `{"method":"shade","batch_size":16}`) // all that is left
	if rest := e.spareMemory(); rest > 0 || left <= 0 {
		t.Errorf("%d bytes were left, %d are", left, rest)
	}
	closeEngine(t, e)
}

// logged collects the engine's log messages at WARN and above.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines returns the logged lines that contain a text.
func (l *logged) lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// TestJobsHaveTheirOwnMemory: each job keeps samples in the memory of its own cache=, and counts its own hits. A job without cache= that finds no memory left continues, and logs one warning.
func TestJobsHaveTheirOwnMemory(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	var log logged
	o.Memory, o.Patience, o.LateEpoch, o.Logger = 32<<20, 20*time.Second, time.Minute, log.logger()
	e := open(t, o)
	defer closeEngine(t, e)
	var jobs []losing
	for _, text := range []string{
		`{"method":"shade","name":"given","batch_size":16,"lag":0,"policy":"paper","world_size":2,"cache":600000}`,
		`{"method":"shade","name":"all","batch_size":16,"lag":0,"world_size":2}`,
		`{"method":"shade","name":"none","batch_size":16,"lag":0,"policy":"lru","world_size":2}`,
		`{"method":"shade","name":"zero","batch_size":16,"lag":0,"policy":"lru","world_size":2,"cache":0}`,
	} {
		number, err := e.Join(text[:40])
		if err != nil {
			t.Fatal(err)
		}
		l := losing{d: d, e: e, job: number, world: 2}
		for rank := range 2 {
			l.ask(t, rank, text)
		}
		jobs = append(jobs, l)
	}
	for epoch := range 2 {
		for _, l := range jobs {
			l.epochs(t, epoch, epoch+1)
		}
	}
	held := map[string]int64{}
	for _, j := range e.Status().Jobs {
		if i := j.Importance; i != nil {
			held[i.Name] = i.HBytes
			if j.Divergences != 0 {
				t.Errorf("%s: %d divergences", i.Name, j.Divergences)
			}
			if i.Name == "none" && i.HHits != 0 {
				t.Errorf("a job without memory has %d hits", i.HHits)
			}
		}
	}
	if held["given"] == 0 || held["given"] > 600_000 || held["all"] < 2_000_000 || held["none"] != 0 || held["zero"] != 0 {
		t.Errorf("the jobs hold %v bytes", held)
	}
	if lines := log.lines("cache="); len(lines) != 1 || !strings.Contains(lines[0], "name=none") {
		t.Errorf("warnings that name cache=: %q", lines)
	}
}
