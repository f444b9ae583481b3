package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// modes are the I/O modes of the suite: one if the environment chooses, else the two extremes.
func modes() []cache.IO {
	if io := testIO(); io.Engine != "" || io.Direct != "" {
		return []cache.IO{io}
	}
	return []cache.IO{{Engine: "auto", Direct: "auto"}, {Engine: "pread", Direct: "off"}}
}

// used returns the disk space of the directories.
func used(t testing.TB, dirs []string) (n int64) {
	t.Helper()
	for _, d := range dirs {
		err := filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			var st syscall.Stat_t
			if err == nil {
				err = syscall.Lstat(path, &st)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a journal that was just replaced
			}
			if err != nil {
				return err
			}
			n += st.Blocks * 512
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// A matrixCase is one way to keep a dataset and to read it.
type matrixCase struct {
	io       cache.IO
	layout   string
	compress string
	parts    bool // samples are made of parts
	world    int
	drop     bool
	budget   float64 // of the dataset's bytes
}

var (
	matrixLayouts  = []string{cache.LayoutLog, cache.LayoutStatic}
	matrixCompress = []string{"none", cache.LZ4}
	matrixParts    = []bool{false, true}
	matrixWorlds   = []int{1, 2, 8} // ranks; two of them read from two directories
	matrixDrop     = []bool{false, true}
	matrixBudgets  = []float64{1, 0.5, 0.1}
)

// matrixCases returns all cases if LCACHE_MATRIX=all. Otherwise it returns enough for any two values to occur together, and both ends of each kind of layout,
// compression and samples. If tests run few of their cases, it has only some of the pairs.
func matrixCases(t *testing.T) (list []matrixCase) {
	ios := modes()
	sizes := []int{len(matrixLayouts), len(matrixCompress), len(matrixParts), len(ios), len(matrixWorlds), len(matrixDrop), len(matrixBudgets)}
	var rows [][]int
	if os.Getenv("LCACHE_MATRIX") == "all" {
		rows = product(sizes)
	} else {
		for _, kind := range testenv.Pick(product(sizes[:3]), nil) {
			least, most := slices.Clone(kind), kind
			for _, n := range sizes[3:] {
				least, most = append(least, 0), append(most, n-1)
			}
			rows = append(rows, least, most)
		}
		seed, _ := drawSeed(t)
		t.Logf("LCACHE_SEED=%d", seed)
		rows = testenv.Some(covering(rand.New(rand.NewPCG(seed, 2)), sizes, rows), 6)
	}
	for _, k := range rows {
		list = append(list, matrixCase{layout: matrixLayouts[k[0]], compress: matrixCompress[k[1]], parts: matrixParts[k[2]], io: ios[k[3]],
			world: matrixWorlds[k[4]], drop: matrixDrop[k[5]], budget: matrixBudgets[k[6]]})
	}
	return list
}

func (c matrixCase) String() string {
	samples := "plain"
	if c.parts {
		samples = "parts"
	}
	return fmt.Sprintf("%s,%s,%s/%s,%s/world=%d,drop=%v,budget=%v", c.layout, c.compress, samples, c.io.Engine, c.io.Direct, c.world, c.drop, c.budget)
}

// TestMatrix reads 4 epochs of a cache in every combination of layout, compression, kind of samples, I/O mode, ranks, drop_last and budget, or
// in a random selection of them (LCACHE_SEED). Bytes, parts, labels and orders are exact. The source is read once, and only samples that the budget can't hold
// are misses. The disk space stays within the budget, and every number of the status agrees.
func TestMatrix(t *testing.T) {
	testenv.Long(t)
	plain := makeDatasetOf(t, 1500, mixedSizes, mostlyWords) // of fewer, a tenth may compress less than the budget counts with
	parts := plain.inParts(t)
	for _, c := range matrixCases(t) {
		t.Run(c.String(), func(t *testing.T) {
			run := &matrixRun{matrixCase: c, dataset: plain, job: samplerJob(4, 7, c.world, c.drop)}
			if c.parts {
				run.dataset = parts
			}
			run.ingest(t)
			run.read(t)
			run.checkSamples(t)
			run.checkBytes(t)
			run.checkEpochs(t)
			run.checkDisk(t)
			run.verify(t)
		})
	}
}

// matrixRun is a case that was run.
type matrixRun struct {
	matrixCase
	*dataset
	job    schedule.Job
	opts   Options
	report *ingest.Report
	kept   []bool // by index: its bytes need no source
	window int64  // bytes
	status status.Document
}

func (m *matrixRun) ingest(t *testing.T) {
	// Little more than is needed, so that there are many segments, and few of them in the window.
	in := ingest.Options{Job: m.job, Memory: 32<<20 + int64(m.world)*2<<20, IO: m.io, Layout: m.layout, Compress: m.compress}
	devices := int64(1)
	if m.world == 2 {
		in.Dirs, devices = twoDirs(t), 2
	}
	if m.compress == cache.LZ4 {
		in.Memory += 38 << 20 * devices // what compressed bytes are read to
	}
	if m.budget < 1 {
		in.Budget = int64(m.budget*float64(m.total)) + 6<<20 // and the minimum slack of 32 blocks, which is negligible in a real budget
	}
	m.opts, m.report = ingested(t, m.dataset, in)
	m.opts.Patience = 5 * time.Second // a busy machine must not make a rank late
	if du := used(t, m.opts.Dirs); du > m.report.BudgetBytes {
		t.Errorf("%d bytes on disk after ingest, the budget is %d", du, m.report.BudgetBytes)
	}
}

func (m *matrixRun) read(t *testing.T) {
	e := open(t, m.opts)
	m.readEpochs(t, e, m.job, 0, m.job.Epochs)
	for i, b := range m.bytes {
		m.kept = append(m.kept, len(b) == 0 || e.cache.Keeps(sample.Index(i)))
	}
	m.window = int64(e.cache.Sizing.Slots) * int64(e.cache.Sizing.Slot)
	m.status = e.Status()
	du := used(t, m.opts.Dirs)
	closeEngine(t, e)
	if du > m.status.Cache.BudgetBytes {
		t.Errorf("%d bytes on disk, the budget is %d", du, m.status.Cache.BudgetBytes)
	}
	js := m.status.Jobs[0]
	if js.CorruptSamples != 0 || js.StaleSamples != 0 || js.ReorderDropped != 0 || js.Divergences != 0 || js.SkippedSamples != 0 || js.SourceRetries != 0 {
		t.Errorf("corrupt %d, stale %d, dropped %d, divergences %d, skipped %d, retries %d: want none",
			js.CorruptSamples, js.StaleSamples, js.ReorderDropped, js.Divergences, js.SkippedSamples, js.SourceRetries)
	}
	if m.status.Cache.State != "normal" || m.status.Cache.Compress != m.compress || js.Layout != m.layout {
		t.Errorf("state %q, compress %s, layout %s (%s)", m.status.Cache.State, m.status.Cache.Compress, js.Layout, js.LayoutReason)
	}
}

// checkSamples: kept samples are hits. Others are misses, and each delivery reads them once.
func (m *matrixRun) checkSamples(t *testing.T) {
	t.Helper()
	var samples, missed, batches, missedBytes, bytes int64
	for epoch := range m.job.Epochs {
		for rank := range m.world {
			order := m.want(t, m.job, epoch, rank)
			samples += int64(len(order))
			batches += int64((len(order) + m.job.BatchSize - 1) / m.job.BatchSize)
			for _, index := range order {
				bytes += int64(len(m.bytes[index]))
				if !m.kept[index] {
					missed++
					missedBytes += int64(len(m.bytes[index]))
				}
			}
		}
	}
	js := m.status.Jobs[0]
	if js.SamplesDelivered != samples || js.BytesDelivered != bytes || js.ChunksDelivered != batches {
		t.Errorf("delivered %d samples, %d bytes, %d chunks; want %d, %d, %d", js.SamplesDelivered, js.BytesDelivered, js.ChunksDelivered, samples, bytes, batches)
	}
	least := missed / int64(m.job.Epochs) // a sample that was read ahead for one epoch may be delivered in the epoch before
	if js.Hits+js.Misses != samples || js.Misses > missed || js.Misses < least {
		t.Errorf("%d hits, %d misses; want %d and %d", js.Hits, js.Misses, samples-missed, missed)
	}
	again := js.Misses / 20 // samples that were read ahead and evicted for a batch that a rank waited for, because memory is tight here
	if js.SourceReads > js.Misses+again || js.SourceBytes > missedBytes || missed > 0 && js.SourceReads == 0 {
		t.Errorf("%d reads of %d bytes from the source, for %d misses of at most %d bytes", js.SourceReads, js.SourceBytes, js.Misses, missedBytes)
	}
	// Data that fits in memory is read faster than the log is moved.
	if js.KeptBytes > 2*m.window && js.RandomReads > int64(len(m.bytes)/10) {
		t.Errorf("%d samples read by index: the window should bring them (%d segments evicted)", js.RandomReads, js.EvictedSegments)
	}
}

// checkBytes: the samples that were read at ingest are kept, and the budget is used.
func (m *matrixRun) checkBytes(t *testing.T) {
	t.Helper()
	kept, stored := int64(0), 0
	for i, b := range m.bytes {
		if m.kept[i] && len(b) > 0 {
			kept += int64(len(b))
			stored++
		}
	}
	js, rep := m.status.Jobs[0], m.report
	if rep.ReadBytes != kept || js.KeptBytes != kept || rep.StoredSamples != stored {
		t.Errorf("%d bytes read, %d kept, %d samples stored; want %d bytes of %d samples", rep.ReadBytes, js.KeptBytes, rep.StoredSamples, kept, stored)
	}
	lo, hi := kept, kept
	if m.compress == cache.LZ4 {
		lo, hi = kept/4, kept*3/4
	}
	if rep.StoredBytes < lo || rep.StoredBytes > hi {
		t.Errorf("%d bytes stored, want %d to %d", rep.StoredBytes, lo, hi)
	}
	if (rep.Saves != nil) != (m.compress == cache.LZ4) || rep.Compress != m.compress {
		t.Errorf("compress is %s, saves %v", rep.Compress, rep.Saves)
	}
	share := float64(m.status.Cache.BudgetBytes-m.status.Cache.SlackBytes-rep.MetadataBytes) / float64(m.total)
	if m.compress == cache.LZ4 {
		share *= 1.25
	}
	if want := min(1, share); m.budget == 1 && kept != m.total || float64(kept)/float64(m.total) < 0.98*want-float64(m.largest())/float64(m.total) {
		t.Errorf("kept %.3f of the bytes, the budget allows %.3f", float64(kept)/float64(m.total), want)
	}
}

// checkEpochs: the epochs add up to the whole, and each has the digest of its order.
func (m *matrixRun) checkEpochs(t *testing.T) {
	t.Helper()
	js := m.status.Jobs[0]
	if len(js.EpochsDone) != m.job.Epochs {
		t.Fatalf("%d epochs done, want %d", len(js.EpochsDone), m.job.Epochs)
	}
	var hits, misses int64
	for epoch, done := range js.EpochsDone {
		digest := sha256.New()
		for rank := range m.world {
			for _, index := range m.want(t, m.job, epoch, rank) {
				digest.Write(binary.LittleEndian.AppendUint32(nil, index))
			}
		}
		if want := hex.EncodeToString(digest.Sum(nil)); done.Epoch != epoch || done.OrderDigest == nil || *done.OrderDigest != want {
			t.Errorf("epoch %d: %+v, want the digest %s", epoch, done, want)
		}
		hits, misses = hits+done.Hits, misses+done.Misses
	}
	if hits != js.Hits || misses != js.Misses {
		t.Errorf("the epochs have %d hits and %d misses, the job %d and %d", hits, misses, js.Hits, js.Misses)
	}
}

// checkDisk: samples are moved in whole blocks, spread over the devices, or stay in place.
func (m *matrixRun) checkDisk(t *testing.T) {
	t.Helper()
	js := m.status.Jobs[0]
	if m.layout == cache.LayoutStatic {
		if js.LogWriteBytes != 0 || js.EvictedSegments != 0 || js.LogReadBytes == 0 {
			t.Errorf("%d bytes written, %d segments evicted, %d bytes read: want samples to stay where they are", js.LogWriteBytes, js.EvictedSegments, js.LogReadBytes)
		}
	} else if mean := js.LogReadBytes / max(js.LogReadOps, 1); mean < m.report.BlockBytes/2 || js.LogWriteBytes == 0 {
		t.Errorf("%d bytes written, a mean log read of %d bytes: want about a block of %d", js.LogWriteBytes, mean, m.report.BlockBytes)
	}
	if len(m.status.Cache.Devices) != len(m.opts.Dirs) {
		t.Errorf("%d devices, want %d", len(m.status.Cache.Devices), len(m.opts.Dirs))
	}
	for _, dev := range m.status.Cache.Devices {
		if share := int64(len(m.opts.Dirs)); dev.State != "normal" || dev.Errors != 0 || dev.Blocks < js.LogWriteOps/(4*share) {
			t.Errorf("%+v of %d writes: want a share of them, without errors", dev, js.LogWriteOps)
		}
	}
}

// verify compares the log's final content with the source, byte by byte.
func (m *matrixRun) verify(t *testing.T) {
	t.Helper()
	v, err := cache.Verify(context.Background(), cache.VerifyOptions{Dirs: m.opts.Dirs, Against: m.dir, IO: m.io})
	if err != nil {
		t.Fatal(err)
	}
	if v.Corrupt+v.Unknown+v.Different != 0 || v.Good+v.Missing != len(m.bytes) || v.InLog != m.report.StoredSamples || v.Good < v.InLog {
		t.Errorf("verify: %+v, want %d samples that are right", v, m.report.StoredSamples)
	}
}

// largest is the size of the largest sample.
func (d *dataset) largest() (n int) {
	for _, b := range d.bytes {
		n = max(n, len(b))
	}
	return n
}

// empty counts the samples without bytes, which are always hits.
func (d *dataset) empty() (n int) {
	for _, b := range d.bytes {
		if len(b) == 0 {
			n++
		}
	}
	return n
}
