package fetch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A read ends when the source sends no byte, to any read, for 30 s. While bytes arrive it continues, but not without
// a limit.
func TestSilence(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []time.Duration // when bytes arrive
		until time.Duration   // until then, bytes arrive every 20 s
		end   time.Duration
	}{
		"silent":                      {nil, 0, 30 * time.Second},
		"bytes for a while":           {[]time.Duration{5 * time.Second, 25 * time.Second}, 0, 55 * time.Second},
		"for a while, then none":      {nil, 100 * time.Second, 130 * time.Second},
		"bytes without an end":        {nil, time.Hour, 300 * time.Second},
		"bytes that come too late":    {[]time.Duration{40 * time.Second}, 0, 30 * time.Second},
		"bytes came before it began":  {[]time.Duration{-5 * time.Second}, 0, 30 * time.Second},
		"bytes just before the limit": {[]time.Duration{30*time.Second - 1}, 0, 60*time.Second - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := New(Options{})
				time.Sleep(10 * time.Second)
				if len(c.bytes) > 0 && c.bytes[0] < 0 {
					f.bytesCame()
				}
				began := time.Now()
				ctx, cancel := f.patient(t.Context())
				defer cancel()
				for at := 20 * time.Second; at <= c.until; at += 20 * time.Second {
					time.AfterFunc(at, f.bytesCame)
				}
				for _, at := range c.bytes {
					if at > 0 {
						time.AfterFunc(at, f.bytesCame)
					}
				}
				<-ctx.Done()
				if took := time.Since(began); took != c.end {
					t.Errorf("it ended after %v, want %v", took, c.end)
				}
				if err := overdue(ctx, ctx.Err()); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("its error is %v", err)
				}
				time.Sleep(2 * time.Hour) // lets the timers of bytes end in the bubble
			})
		})
	}
}

// A read whose caller gives up, and one that has ended, are not overdue.
func TestEndedReadIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{})
		outer, give := context.WithCancel(t.Context())
		ctx, cancel := f.patient(outer)
		give()
		if err := overdue(ctx, ctx.Err()); err != context.Canceled {
			t.Errorf("the caller gave up: %v", err)
		}
		cancel()
		ctx, cancel = f.patient(t.Context())
		cancel()
		time.Sleep(time.Hour)
		if err := overdue(ctx, ctx.Err()); err != context.Canceled {
			t.Errorf("it has ended: %v", err)
		}
	})
}
