package s3_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

// TestStalledSockets: a connection that stays open without another byte, or with few, delays a read only for a
// bounded time. Either a second request brings the answer, or the silent one is ended and repeated.
func TestStalledSockets(t *testing.T) {
	g := s3test.Start(t)
	files := map[string][]byte{}
	for i := range 40 {
		files[fmt.Sprintf("k%02d", i)] = bytes.Repeat([]byte{byte(i), byte(i >> 1), 7}, 500*i+1)
	}
	g.Fill(t, files)
	for name, c := range map[string]struct {
		o      object.Options
		toxics map[string]map[string]any // each for a part of the connections
		went   func(c object.Counts) bool
	}{
		"hedged":     {object.Options{Idle: time.Second}, map[string]map[string]any{"timeout": {"timeout": 0}}, func(c object.Counts) bool { return c.Hedges > 0 }},
		"broken off": {object.Options{Idle: 250 * time.Millisecond, NoHedge: true}, map[string]map[string]any{"timeout": {"timeout": 0}}, func(c object.Counts) bool { return c.Retries > 0 && c.Hedges == 0 }},
		"slow": {object.Options{Idle: 250 * time.Millisecond}, map[string]map[string]any{"bandwidth": {"rate": 40}, "slow_close": {"delay": 400}},
			func(object.Counts) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			p := s3test.StartProxy(t, g.URL)
			r := object.NewReader(open(t, p.URL, s3test.Bucket, s3.Settings{}), c.o)
			read := func(ctx context.Context, i int) {
				key := fmt.Sprintf("k%02d", i%len(files))
				got := make([]byte, len(files[key]))
				if _, err := r.Read(ctx, object.Object{Key: key, Size: int64(len(got))}, got); err != nil || !bytes.Equal(got, files[key]) {
					t.Errorf("%s: %v, or other bytes", key, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // limits a hang
			defer cancel()
			for i := range 40 { // so that the usual duration is known
				read(ctx, i)
			}
			for toxic, attributes := range c.toxics {
				p.Add(t, toxic, 0.3, attributes)
			}
			began := time.Now()
			for rounds := 0; rounds < 3 || !c.went(r.Counts()); rounds++ {
				p.Enable(t, false) // otherwise old connections, and those without a toxic, would carry everything
				p.Enable(t, true)
				var next atomic.Int64
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for i := int(next.Add(1)); i <= 24; i = int(next.Add(1)) {
							read(ctx, i)
						}
					})
				}
				if wg.Wait(); ctx.Err() != nil || t.Failed() {
					t.Fatalf("after %v: %+v, %v", time.Since(began), r.Counts(), ctx.Err())
				}
			}
			t.Logf("%+v in %v", r.Counts(), time.Since(began))
		})
	}
}
