package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// observing reads batches of an epoch of a job with importance, and observes losses that are the same in all epochs.
func observing(t *testing.T, e *Engine, c *deliver.Client, epoch, from, to int) (order []sample.Index) {
	t.Helper()
	for batch := from; batch < to; batch++ {
		got, err := c.ChunkAt(context.Background(), deliver.Position{Epoch: epoch, Batch: batch})
		if errors.Is(err, io.EOF) {
			return order
		}
		if err != nil {
			t.Fatalf("epoch %d batch %d: %v", epoch, batch, err)
		}
		o := score.Observation{Kind: score.Losses, Epoch: uint32(epoch), Batch: uint32(batch), Index: slices.Clone(got.Indices), Node: sample.None}
		c.Release(got.Lease)
		for _, i := range o.Index {
			o.Loss = append(o.Loss, float32(i%97))
		}
		e.Observe(0, o)
		order = append(order, o.Index...)
		time.Sleep(2 * time.Millisecond) // the model computes
	}
	return order
}

// TestDrawnLogIsRecognised: a server is restarted in the middle of a drawn epoch, or between two, after a clean stop or a kill. It finds that the logs are in the job's orders, and reads them in
// sequence. If the files about their layouts are missing or damaged, it sorts the logs, and delivers the same.
func TestDrawnLogIsRecognised(t *testing.T) {
	givesBack(t)
	d := photos(t, 6000)
	o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10, Memory: 28 << 20})
	cache := d.total / 5
	o.Patience, o.Memory = 20*time.Second, 54<<20+cache
	text := fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,"method":"impact","lag":1,"params":{"s_share":0,"warmup":2}}`, cache)
	e := open(t, o)
	losing{d: d, e: e, world: 1}.ask(t, 0, text)
	c := attach(t, e)
	for epoch := range 4 {
		observing(t, e, c, epoch, 0, 1000)
	}
	const middle = 22
	root := t.TempDir()
	copied := func(name string) string {
		logsBecome(t, e, "the pass comes to rest", func(l logfiles) bool { return l.read == 5 && l.waits })
		if err := e.cur.Log.Seal(t.Context()); err != nil { // so do its writes
			t.Fatal(err)
		}
		to := filepath.Join(root, name)
		copyCache(t, e.cache.Dirs[0], to)
		return to
	}
	order := observing(t, e, c, 4, 0, middle)
	killed := copied("killed in the middle")
	order = append(order, observing(t, e, c, 4, middle, 1000)...)
	between := copied("killed between two epochs")
	next := observing(t, e, c, 5, 0, middle)
	c.Disconnected()
	closeEngine(t, e)
	stopped := filepath.Join(root, "stopped in the middle")
	copyCache(t, e.cache.Dirs[0], stopped)
	for k, at := range []struct {
		dir          string
		epoch, batch int
		want         []sample.Index
	}{{killed, 4, middle, order[middle*64:]}, {between, 5, 0, next}, {stopped, 5, middle, nil}} { // the first one's log is that of epoch 5 already
		t.Run(filepath.Base(at.dir), func(t *testing.T) {
			for _, lines := range testenv.One([]string{"damaged", "whole", "none"}, k) {
				again := o
				again.Dirs = []string{at.dir + ", lines " + lines}
				copyCache(t, at.dir, again.Dirs[0])
				for num := range 2 {
					damageLayoutFile(t, filepath.Join(again.Dirs[0], fmt.Sprint("line-", num)), lines)
				}
				restarted := open(t, again)
				losing{d: d, e: restarted, world: 1}.ask(t, 0, text)
				c := attach(t, restarted)
				got := observing(t, restarted, c, at.epoch, at.batch, at.batch+1)
				recognised := func(l logfiles) bool { return l.recovered && (l.read == at.epoch || l.read == at.epoch+1) }
				if lines == "whole" {
					logsBecome(t, restarted, "the log that is read is recognised", recognised)
				}
				now, _, _ := restarted.nowLogfiles()
				found := recognised(now)
				got = append(got, observing(t, restarted, c, at.epoch, at.batch+1, 1000)...)
				s := restarted.Status().Jobs[0]
				place, _ := restarted.prefetcher.Work(prefetch.AllJobs)
				t.Logf("lines %s: %d of %d samples lay ready, %d from the source, %.1f MB were read with random reads; %.1f MB read, %.1f MB written", lines, s.PrefetchedSamples, len(got), s.SourceReads, float64(place.Bytes)/1e6, float64(s.LogReadBytes)/1e6, float64(s.LogWriteBytes)/1e6)
				if found != (lines == "whole") {
					t.Errorf("lines %s: the log that is read was recognised: %v", lines, found)
				}
				if n := min(len(at.want), len(got)); !slices.Equal(got[:n], at.want[:n]) || s.Divergences != 0 {
					t.Errorf("lines %s: another order, or %d divergences", lines, s.Divergences)
				}
				c.Disconnected()
				closeEngine(t, restarted)
			}
		})
	}
}

// damageLayoutFile leaves the file about a Logfile's layout as it is, or damages or removes it.
func damageLayoutFile(t *testing.T, path, how string) {
	t.Helper()
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) || how == "whole":
		return
	case err != nil:
		t.Fatal(err)
	case how == "damaged":
		data[len(data)-1] ^= 1
		err = os.WriteFile(path, data, 0o600)
	default:
		err = os.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
}
