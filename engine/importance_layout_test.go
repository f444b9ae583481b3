package engine

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// steady trains an epoch, with a loss for each sample that is the same in all epochs and log-normal, as losses are.
func (l losing) steady(t *testing.T, c *deliver.Client, epoch int) (samples int, bytes int64) {
	t.Helper()
	l.loss = func(i sample.Index, _ int) float32 {
		return float32(math.Exp(0.8 * rand.New(rand.NewPCG(uint64(i), 1)).NormFloat64()))
	}
	order := l.observed(t, c, epoch, func(int) {})
	for _, i := range order {
		bytes += int64(len(l.d.bytes[i]))
	}
	return len(order), bytes
}

// TestUnusedSegmentsStay: segments with few wanted samples are not moved, and samples in memory are not read. Once the unused segments are in the order of values, the device reads and writes much
// less than the dataset. Nothing is read from the source.
func TestUnusedSegmentsStay(t *testing.T) {
	testenv.WithoutRace(t)
	d := photos(t, 6000)
	for _, job := range testenv.Some([]struct {
		text string
		most float64 // that is written for each byte delivered; 1.9 and 0.96 where all is moved
	}{
		{`"method":"impact","lag":1,"params":{"s_share":0,"warmup":2}`, 1.7},
		{`"method":"impact","lag":"split","params":{"s_share":0,"warmup":2}`, 1.7},
		{`"method":"shade","lag":1`, 0.92},
	}, 1) {
		t.Run(job.text, func(t *testing.T) {
			givesBack(t)
			o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10, Memory: 48 << 20})
			cache := d.total / 5
			o.Patience, o.Memory = 20*time.Second, 52<<20+cache
			e := open(t, o)
			defer closeEngine(t, e)
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,%s}`, cache, job.text))
			c := attach(t, e)
			defer c.Disconnected()
			var stayed int64
			var all float64 // written for each byte, in the epochs from 5
			for epoch := range 8 {
				if epoch == 5 {
					stayed = e.scan.Stats.Carried.Load()
				}
				before := e.Status().Jobs[0]
				samples, bytes := l.steady(t, c, epoch)
				now := e.Status().Jobs[0]
				read, written := float64(now.LogReadBytes-before.LogReadBytes)/float64(bytes), float64(now.LogWriteBytes-before.LogWriteBytes)/float64(bytes)
				t.Logf("epoch %d: %d samples, %d from memory; read %.2f and written %.2f of each byte delivered", epoch, samples,
					now.Importance.HHits-before.Importance.HHits, read, written)
				if epoch >= 5 {
					all += written
				}
				logsBecome(t, e, fmt.Sprintf("there is the log of epoch %d", epoch+1), func(l logfiles) bool { return epoch < 2 || l.read == epoch+1 }) // otherwise a busy machine begins the next epoch with random reads
			}
			if stayed = e.scan.Stats.Carried.Load() - stayed; all/3 > job.most || stayed == 0 {
				t.Errorf("the last 3 epochs: written %.2f of each byte, want at most %.2f; %d segments stay", all/3, job.most, stayed)
			}
			noSource(t, e)
		})
	}
}

// TestKilledWithUnusedSegments: files as a killed server leaves them, in the middle of epochs and at their ends, while segments are handed over from one Logfile to the next. A server that starts over them gives the
// same order and the right bytes, and reads little more from the source than the samples that were in write buffers.
func TestKilledWithUnusedSegments(t *testing.T) {
	for _, lag := range []string{`1`, `"split"`} {
		t.Run("lag "+lag, func(t *testing.T) { testKilledWithUnusedSegments(t, lag) })
	}
}

func testKilledWithUnusedSegments(t *testing.T, lag string) {
	givesBack(t)
	d := photos(t, 3000)
	o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10, Memory: 40 << 20})
	cache := d.total / 5
	o.Patience, o.Memory = 20*time.Second, 49<<20+cache
	text := fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,"method":"impact","lag":%s,"params":{"s_share":0,"warmup":2}}`, cache, lag)
	plain, disk := o.IO, &heldDisk{}
	o.IO.Inject = disk.inject
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1, loss: func(i sample.Index, _ int) float32 { return float32(i % 97) }}
	l.ask(t, 0, text)
	c := attach(t, e)
	defer c.Disconnected()
	killed, orders := map[string]int{}, map[int][]sample.Index{}
	root := t.TempDir()
	for epoch := range 7 {
		orders[epoch] = l.observed(t, c, epoch, func(batch int) {
			if epoch >= 4 && (batch == 1 || batch == 16 || batch == 23) {
				to := filepath.Join(root, fmt.Sprintf("%d-%d", epoch, batch))
				disk.copyCache(t, e.cache.Dirs[0], to)
				killed[to] = epoch
			}
		})
	}
	if n := e.scan.Stats.Carried.Load(); n < 10 || len(killed) != 9 {
		t.Fatalf("%d segments were handed over, %d copies were made", n, len(killed))
	}
	o.IO = plain
	restarted(t, o, d, text, killed, func(dir string, epoch int, l losing, c *deliver.Client) {
		l.goesOn(t, c, epoch, orders[epoch])
		torn := strings.HasSuffix(dir, "-1") // copied while the scan wrote: the arena and the journals are of different moments, but all bytes are right
		if s := l.e.Status().Jobs[0]; s.SourceReads > 900 && !torn {
			t.Errorf("%s: %d of 3,000 samples read from the source", filepath.Base(dir), s.SourceReads)
		}
	})
}

// restarted starts a server over each of the folders that killed servers left, by folder the epoch that was read, and hands its job over.
func restarted(t *testing.T, o Options, d *dataset, text string, killed map[string]int, each func(dir string, epoch int, l losing, c *deliver.Client)) {
	t.Helper()
	for _, dir := range testenv.Some(slices.Sorted(maps.Keys(killed)), 4) {
		epoch := killed[dir]
		o.Dirs = []string{dir}
		e := open(t, o)
		l := losing{d: d, e: e, world: 1}
		l.ask(t, 0, text)
		c := attach(t, e)
		each(dir, epoch, l, c)
		s := e.Status().Jobs[0]
		if s.Divergences != 0 {
			t.Errorf("%s: %d divergences", filepath.Base(dir), s.Divergences)
		}
		t.Logf("%s: %d reads from the source, %d corrupt", filepath.Base(dir), s.SourceReads, s.CorruptSamples)
		c.Disconnected()
		closeEngine(t, e)
	}
}

// goesOn reads an epoch twice, in a known order.
func (l losing) goesOn(t *testing.T, c *deliver.Client, epoch int, order []sample.Index) {
	t.Helper()
	for range 2 {
		if got, err := l.train(c, epoch, 0, 0); err != nil || !slices.Equal(got, order) {
			t.Errorf("epoch %d: another order, or %v", epoch, err)
		}
	}
}
