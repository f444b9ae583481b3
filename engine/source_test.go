package engine

import (
	"context"
	"sync"
	"syscall"
	"testing"

	"lcache/sample"
	"lcache/source"
)

// troubled is a source with trouble of its own: before each read it is asked what goes wrong, with how often the sample was read already.
type troubled struct {
	source.Source
	wrong func(e sample.Entry, times int) error

	mu    sync.Mutex // guards the fields that follow
	reads map[string]int
}

func trouble(wrong func(e sample.Entry, times int) error) func(source.Source) source.Source {
	return func(s source.Source) source.Source {
		return &troubled{Source: s, wrong: wrong, reads: map[string]int{}}
	}
}

func (s *troubled) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	s.mu.Lock()
	times := s.reads[e.Name]
	s.reads[e.Name]++
	s.mu.Unlock()
	if err := s.wrong(e, times); err != nil {
		return &source.SampleError{Name: e.Name, Op: "read", Err: err}
	}
	return s.Source.Read(ctx, e, dst)
}

// A source that falters costs retries, which are counted, and neither errors nor reads beyond.
func TestSourceFalters(t *testing.T) {
	d := makeDataset(t, 60, mixedSizes)
	j := samplerJob(2, 8, 1, false)
	o, _ := ingested(t, d, IngestOptions{Job: j, NoPrefill: true, Memory: 56 << 20})
	even := func(e sample.Entry) bool { return e.Name[len(e.Name)-len("0.bin")]%2 == 0 }
	o.Source = trouble(func(e sample.Entry, times int) error {
		if times == 0 && even(e) {
			return syscall.ESTALE
		}
		return nil
	})
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, 2)
	faulty := int64(0)
	for i := range d.bytes {
		entry, err := e.manifest.Entry(sample.Index(i))
		if err != nil {
			t.Fatal(err)
		}
		if entry.Size > 0 && even(entry) {
			faulty++
		}
	}
	if s := e.Status().Jobs[0]; faulty == 0 || s.SourceRetries != faulty || s.SourceReads != int64(len(d.bytes)-d.empty()) {
		t.Errorf("%d retries of %d faults, %d reads of %d samples", s.SourceRetries, faulty, s.SourceReads, len(d.bytes)-d.empty())
	}
}
