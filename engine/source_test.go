package engine

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/internal/usage"
	"lcache/sample"
	"lcache/source"
)

// troubled is a source that fails on request: before each read it asks for the error, with the number of earlier reads of the sample.
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

// vanishing returns a source, and a function that removes all of its files.
func vanishing() (wrap func(source.Source) source.Source, goes func()) {
	var gone atomic.Bool
	return trouble(func(sample.Entry, int) error {
		if gone.Load() {
			return syscall.ENOENT
		}
		return nil
	}), func() { gone.Store(true) }
}

// A source that fails for a while costs retries, which are counted, but no errors and no other reads.
func TestSourceFailsForAWhile(t *testing.T) {
	d := makeDataset(t, 60, mixedSizes)
	j := samplerJob(2, 8, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, NoPrefill: true, Memory: 56 << 20})
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
		entry, err := e.cache.Manifest.Entry(sample.Index(i))
		if err != nil {
			t.Fatal(err)
		}
		if entry.Size > 0 && even(entry) {
			faulty++
		}
	}
	if s := e.Status().Jobs[0]; faulty == 0 || s.SourceRetries != faulty {
		t.Errorf("%d retries of %d faults", s.SourceRetries, faulty)
	}
}

// With on-error skip an epoch continues without the unreadable samples, and reports them. With fail, the default, their requests end
// with an error that names them.
func TestOnError(t *testing.T) {
	d := makeDataset(t, 200, mixedSizes)
	j := samplerJob(2, 8, 1, false)
	lost := func(name string) bool { return name[len(name)-len("0.bin")] == '3' }
	for _, policy := range []string{"", "fail", "skip"} {
		o, _ := ingested(t, d, ingest.Options{Job: j, NoPrefill: true, Memory: 56 << 20})
		o.OnError = policy
		o.Logger = nil
		o.Source = trouble(func(e sample.Entry, _ int) error {
			if lost(e.Name) {
				return source.ErrGone
			}
			return nil
		})
		e := open(t, o)
		c, info, err := e.Attach(os.Getpid(), "")
		if err != nil {
			t.Fatal(err)
		}
		if policy != "skip" {
			_, err := d.readRank(e, c, 0, 0, 0)
			var named *source.SampleError
			if !errors.As(err, &named) || !lost(named.Name) || info.OnError != "fail" || e.Status().Jobs[0].SkippedSamples != 0 {
				t.Errorf("%q: got %v, %q", policy, err, info.OnError)
			}
			closeEngine(t, e)
			continue
		}
		gone := int64(0)
		for epoch := range 2 {
			got, err := d.readRank(e, c, epoch, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(d.want(t, j, epoch, 0), func(i sample.Index) bool {
				name, err := e.cache.Manifest.Name(i)
				if err != nil {
					t.Fatal(err)
				}
				if lost(name) && len(d.bytes[i]) > 0 {
					gone++
					return true
				}
				return false
			})
			if !slices.Equal(got, want) {
				t.Errorf("epoch %d: got %d samples, want the %d that can be read, in order", epoch, len(got), len(want))
			}
		}
		s := e.Status().Jobs[0]
		if s.SkippedSamples != gone || gone == 0 || s.SamplesDelivered != int64(2*len(d.bytes))-gone || info.OnError != "skip" {
			t.Errorf("%d skipped of %d, %d delivered, %q", s.SkippedSamples, gone, s.SamplesDelivered, info.OnError)
		}
		if len(s.EpochsDone) != 2 || s.EpochsDone[0].OrderDigest != nil || s.Divergences != 0 {
			t.Errorf("%+v, %d divergences: want two epochs without a digest", s.EpochsDone, s.Divergences)
		}
		closeEngine(t, e)
	}
	var usage *usage.Error
	if _, err := Open(context.Background(), Options{Dirs: []string{t.TempDir()}, OnError: "maybe"}); !errors.As(err, &usage) {
		t.Errorf("got %v", err)
	}
}
