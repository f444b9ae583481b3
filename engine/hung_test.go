package engine

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/logfile"
)

// A disk that hangs below a journal, or below the sums, does not prevent the stop of a server. The server reports what hangs, leaves memory that may still be
// written to, and keeps the cache locked until its process ends.
func TestCloseWithAHungFile(t *testing.T) {
	testenv.Long(t)
	for _, c := range []struct {
		step, file string
		byClose    time.Duration // Close reaches the hung operation itself, unless its earlier steps take too long
		held       bool          // that the cache stays locked is looked at here, which takes a second
	}{
		{"sync", "journal-", 200 * time.Millisecond, true},
		{"write", "journal-", 0, false},
		{"sync", "begins", 0, false},     // the mover begins a Logfile
		{"remove", "journal-", 0, false}, // the mover drops one
		{"sync", cache.SumsName, time.Second, false},
	} {
		t.Run(c.step+" of "+c.file, func(t *testing.T) {
			b := damageBedOf(t, 60, ingest.Options{})
			before := mapped()
			o := b.opts
			testenv.Allow(filepath.Dir(filepath.Dir(o.Dirs[0]))) // what hangs stays open
			testenv.Allow(filepath.Dir(b.dir))
			o.IO.CloseTimeout = max(c.byClose, 20*time.Millisecond)
			if c.byClose == 0 {
				o.Patience = 20 * time.Millisecond
			}
			hold, hangs := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			defer release()
			reached := sync.OnceFunc(func() { close(hangs) })
			o.IO.Inject = func(io *blockio.IO) {
				blockio.InjectPlain(io, func(_ int64, path, step string) blockio.Fault {
					name := filepath.Base(path)
					if name == "journal-0.new" || name == "journal-1.new" {
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
			stop := 20 * time.Second
			if c.byClose == 0 {
				stop = 200 * time.Millisecond
				<-hangs
			}
			closesLate(t, e, stop, release)
			if !c.held {
				release()
			} else if _, err := Open(t.Context(), b.opts); err == nil || !strings.Contains(err.Error(), "in use") {
				t.Errorf("the cache was opened again while a write to it was under way: %v", err)
			}
			release()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // in production the end of the process ends it
			defer cancel()
			if err := errors.Join(e.halt(ctx), e.cache.IO.Close()); err != nil {
				t.Error(err)
			}
			takeBack(e)
			came := false
			select {
			case <-hangs:
				came = true
			default:
				t.Log("something else took so long that Close did not come there")
			}
			if came && c.file == cache.SumsName {
				for end := time.Now().Add(time.Minute); mapped() > before && time.Now().Before(end); { // by the sync that hung: a busy disk may take its time
					time.Sleep(time.Millisecond)
				}
			} else if err := closeLearnt(e); err != nil {
				t.Error(err)
			}
		})
	}
}

// closesLate closes an engine whose disk hangs until release is called. Close must report that within its time.
func closesLate(t *testing.T, e *Engine, within time.Duration, release func()) {
	t.Helper()
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
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
}
