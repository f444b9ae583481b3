package state

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/durable"
	"lcache/internal/importance/score"
)

// TestSaver: a Saver writes the same bytes as Save. While the disk delays one version, Save returns; of the versions
// queued meanwhile, the newest is written.
func TestSaver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	s, _ := opened(t, path, config(t, methods["impact, split"]))
	hold, began := make(chan struct{}), make(chan struct{})
	release, begins := sync.OnceFunc(func() { close(hold) }), sync.OnceFunc(func() { close(began) })
	defer release()
	trace := func(c durable.Change) error {
		if c.Step == durable.StepSync {
			begins()
			<-hold
		}
		return nil
	}
	saved := make(chan int64, 10)
	v := NewSaver(path, trace, slog.New(slog.DiscardHandler), func(number int64) { saved <- number })
	defer v.Wait()
	for epoch := range 4 {
		if err := s.Advance(epoch, score.Progress{}); err != nil {
			t.Fatal(err)
		}
		if err := v.Save(s, int64(epoch)); err != nil {
			t.Fatal(err)
		}
		if epoch == 0 {
			<-began
		}
		observe(s, epoch)
	}
	var want bytes.Buffer
	for epoch := 4; epoch < 6; epoch++ {
		if err := s.Advance(epoch, score.Progress{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.encode(&want), v.Save(s, 6)); err != nil {
		t.Fatal(err)
	}
	if n := len(saved); n > 0 {
		t.Errorf("%d versions are durable while the disk hangs", n)
	}
	release()
	for _, number := range []int64{0, 6} {
		select {
		case got := <-saved:
			if got != number {
				t.Errorf("version %d is saved, want %d", got, number)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("version %d is not saved", number)
		}
	}
	v.Wait()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the file has %d bytes, want %d: %v", len(got), want.Len(), err)
	}
}

// TestSaverFails: the failure of a version is reported, and the next version is written.
func TestSaverFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	s, said := opened(t, path, config(t, methods["shade"]))
	full := true
	v := NewSaver(path, func(durable.Change) error {
		if full {
			return errors.New("disk full")
		}
		return nil
	}, s.log, func(int64) {})
	if err := errors.Join(s.Advance(0, score.Progress{}), v.Save(s, 1)); err != nil {
		t.Fatal(err)
	}
	v.Wait()
	if _, err := os.Stat(path); err == nil || !strings.Contains(said.String(), "disk full") {
		t.Errorf("%v: %s", err, said)
	}
	full = false
	if err := v.Save(s, 2); err != nil {
		t.Fatal(err)
	}
	v.Wait()
	if again, _ := opened(t, path, config(t, methods["shade"])); again.Order(0) == nil {
		t.Error("the second version is not in the file")
	}
}
