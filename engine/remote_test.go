package engine

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
)

// inBucket puts a dataset into a folder of a bucket, and makes that its source.
func (d *dataset) inBucket(t *testing.T, g *s3test.Gateway) {
	t.Helper()
	files := map[string][]byte{}
	for i, key := range d.keys() {
		files[key] = d.bytes[i]
	}
	g.Fill(t, files)
	d.dir = "s3://" + s3test.Bucket + "/set/"
}

// keys are the keys of the samples in the bucket.
func (d *dataset) keys() (keys []string) {
	for i := range d.bytes {
		keys = append(keys, fmt.Sprintf("set/class-%d/%06d.bin", i*3/len(d.bytes), i))
	}
	return keys
}

// counting is a source that calls a function at one of its reads.
type counting struct {
	source.Source
	reads atomic.Int64
	at    int64
	do    func()
}

func (s *counting) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	if s.reads.Add(1) == s.at {
		s.do()
	}
	return s.Source.Read(ctx, e, dst)
}

func (s *counting) Requests() (source.Requests, bool) { return source.RequestsOf(s.Source) }

// A bucket that can't be reached in the middle of an epoch delays the epoch, and fails no request. LCACHE_OUTAGE is the minimum length of the outage.
func TestOutageInAnEpoch(t *testing.T) {
	testenv.AnyIO(t)
	least, err := time.ParseDuration(os.Getenv("LCACHE_OUTAGE") + "0s")
	if err != nil {
		t.Fatal(err)
	}
	g := s3test.Start(t)
	d := makeDataset(t, 60, mixedSizes)
	d.inBucket(t, g)
	p := s3test.StartProxy(t, g.URL)
	j := samplerJob(2, 8, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, NoPrefill: true, Memory: 56 << 20, Remote: source.Remote{S3: source.S3{Endpoint: p.URL, Region: s3test.Region}}})
	var e *Engine
	var opened sync.WaitGroup // of e
	opened.Add(1)
	back := make(chan struct{})
	o.Source = func(s source.Source) source.Source {
		return &counting{Source: s, at: 21, do: func() {
			p.Enable(t, false)
			began := time.Now()
			go func() {
				defer close(back)
				opened.Wait()
				for end := began.Add(least + 20*time.Second); e.Status().Totals.SourceRetries == 0 || time.Since(began) < least; {
					if time.Sleep(time.Millisecond); time.Now().After(end) { // the trouble has to last
						t.Error("no read was tried again")
						break
					}
				}
				p.Enable(t, true)
			}()
		}}
	}
	e = open(t, o)
	opened.Done()
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, 2)
	<-back
	if s := e.Status().Jobs[0]; s.SkippedSamples != 0 || s.SourceRetries == 0 || s.SourceHedges != e.cache.Source.Hedges() {
		t.Errorf("%d samples skipped, %d retries, %d hedges", s.SkippedSamples, s.SourceRetries, s.SourceHedges)
	}
}
