package launch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"lcache/logfile"
)

// onWarning calls f with each warning.
type onWarning struct {
	slog.Handler
	f func(text string)
}

func (h onWarning) Enabled(context.Context, slog.Level) bool { return true }

func (h onWarning) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		h.f(r.Message)
	}
	return nil
}

func (h onWarning) WithAttrs([]slog.Attr) slog.Handler { return h }

// TestRunWaitsForAListing: a run whose cache another process has, and does not serve yet, begins when that process is done.
func TestRunWaitsForAListing(t *testing.T) {
	o, _ := options(t, "true")
	images(t, o, "a/1.jpg", "b/2.jpg")
	dir := o.folder()
	if err := os.MkdirAll(filepath.Clean(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := logfile.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	waited := 0
	release := sync.OnceFunc(func() { err = errors.Join(lock.Remove(), lock.Close()) })
	defer release()
	o.Logger = slog.New(onWarning{slog.DiscardHandler, func(string) { waited++; release() }})
	if opened, _ := filtered(t, o); opened.Samples != 2 || waited != 1 || err != nil {
		t.Errorf("%+v after %d waits, %v", opened, waited, err)
	}
}
