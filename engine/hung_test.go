package engine

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/blockio"
	"lcache/cache"
	"lcache/ingest"
	"lcache/logfile"
)

// A disk that hangs below a journal, or below the sums, does not keep a server from stopping: it says what hangs, leaves what may still be
// written to, and keeps the cache from others until its process ends.
func TestCloseWithAHungFile(t *testing.T) {
	for _, c := range []struct {
		step, file string
		byClose    bool // it is Close that comes there
		held       bool // that the cache stays locked is looked at here, which takes a second
	}{
		{"sync", "journal-", true, true},
		{"write", "journal-", false, false},
		{"sync", "begins", false, false},     // the mover begins a Logfile
		{"remove", "journal-", false, false}, // the mover drops one
		{"sync", cache.SumsName, true, false},
	} {
		t.Run(c.step+" of "+c.file, func(t *testing.T) {
			b := damageBedOf(t, 60, ingest.Options{})
			o := b.opts
			o.IO.CloseTimeout = 20 * time.Millisecond
			if !c.byClose {
				o.Patience = 20 * time.Millisecond
			}
			hold, hangs := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			defer release()
			reached := sync.OnceFunc(func() { close(hangs) })
			o.IO.Inject = func(io *blockio.IO) {
				blockio.InjectPlain(io, func(_ int64, path, step string) blockio.Fault {
					name := filepath.Base(path)
					if name == "journal-0.tmp" || name == "journal-1.tmp" {
						name = "begins"
					}
					if step != c.step || !strings.Contains(name, c.file) {
						return blockio.Fault{}
					}
					reached()
					return blockio.Fault{Hold: hold}
				})
			}
			e, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			client := attach(t, e)
			for epoch := range 2 { // also while the log stands still
				if _, err := b.readRank(e, client, epoch, 0, 0); err != nil {
					t.Error(err)
				}
			}
			if !c.byClose {
				<-hangs
			}
			closed := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				defer cancel()
				closed <- e.Close(ctx)
			}()
			select {
			case err := <-closed:
				if late := new(logfile.HungError); !errors.As(err, &late) {
					t.Errorf("close: %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("close hangs, too")
				release()
				<-closed
			}
			if !c.held {
				release()
			} else if _, err := Open(t.Context(), b.opts); err == nil || !strings.Contains(err.Error(), "in use") {
				t.Errorf("the cache was opened again while a write to it was under way: %v", err)
			}
			release()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // what the end of the process is for
			defer cancel()
			if err := errors.Join(e.halt(ctx), e.cache.IO.Close()); err != nil {
				t.Error(err)
			}
			if takeBack(e); c.file == cache.SumsName {
				for end := time.Now().Add(10 * time.Second); mapped() > 0 && time.Now().Before(end); { // by the sync that hung
					time.Sleep(time.Millisecond)
				}
			} else if err := e.cache.Sums.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
