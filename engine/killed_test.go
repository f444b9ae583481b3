package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/source"
)

// childEnv makes this test's binary run an ingest and nothing else: the options, as JSON. Only a process can be killed.
const childEnv = "LCACHE_ENGINE_CHILD"

type childOptions struct {
	Source         string
	Dirs           []string
	Job            schedule.Job
	Memory         int64
	Engine, Direct string
}

func child(said string) int {
	var o childOptions
	if err := json.Unmarshal([]byte(said), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	in := ingest.Options{Source: o.Source, Dirs: o.Dirs, Job: o.Job, Relist: true, Memory: o.Memory, IO: cache.IO{Engine: o.Engine, Direct: o.Direct}}
	if _, err := ingest.Run(context.Background(), in); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// killedIngest runs an ingest that is killed after a time; it reports whether it had ended before.
func killedIngest(t *testing.T, o childOptions, after time.Duration) (done bool) {
	t.Helper()
	said, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(said))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(after, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	kill.Stop()
	if ended := new(exec.ExitError); errors.As(err, &ended) && ended.ExitCode() >= 0 {
		t.Fatalf("the ingest ended with %v: %s", err, out.String())
	}
	return err == nil
}

// TestKilledWhileAdapting: an ingest that adapts the cache to a changed source is killed at random moments. After each kill the cache
// serves the files' current bytes, their bytes at the last listing, or an error for a sample that changed. At the end only new samples
// and the samples that the kills lost were read.
func TestKilledWhileAdapting(t *testing.T) {
	testenv.Long(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	j := samplerJob(3, 16, 1, false)
	d := makeDataset(t, 1200, mixedSizes)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20})
	in := childOptions{d.dir, o.Dirs, j, 64 << 20, testIO().Engine, testIO().Direct}
	each := testenv.Pick(12, 2) // kills
	kills, finished, read := 0, 0, int64(0)
	for round := range 3 {
		fresh := int64(0)
		for i := range 40 {
			d.write(t, fmt.Sprintf("class-0/%06d-%d", i*11, round), pseudo(i, 10_000))
			d.write(t, fmt.Sprintf("class-1/%06d.bin", 500+i*7+round), pseudo(i+round, 5_000+i))
			fresh += 15_000 + int64(i)
			os.Remove(filepath.Join(d.dir, fmt.Sprintf("class-2/%06d.bin", 850+i*7+round)))
		}
		d.reload(t)
		died := int64(0) // samples in write buffers, and samples written just before the kill, without records
		for done := false; !done && kills < each*(round+1); {
			done = killedIngest(t, in, time.Duration(r.IntN(300))*time.Millisecond)
			if done {
				finished++
			} else {
				kills++
				died = d.total / 2
			}
			if r.IntN(3) == 0 {
				d.serveAnyhow(t, o)
			}
		}
		_, rep := ingested(t, d, ingest.Options{Job: j, Dirs: o.Dirs, Relist: true, Memory: 64 << 20, Logger: testLogger(t)})
		if read += rep.ReadBytes; rep.ReadBytes > fresh+died {
			t.Errorf("round %d: the last of the ingests read %d bytes; %d are new, %d may have died", round, rep.ReadBytes, fresh, died)
		}
	}
	t.Logf("%d ingests were killed, %d had ended before; those after them read %d of %d bytes", kills, finished, read, d.total)
	d.afterChange(t, o, j)
}

// serveAnyhow reads every sample of a cache in any state: right bytes, or an error that names the sample.
func (d *dataset) serveAnyhow(t *testing.T, o Options) {
	t.Helper()
	o.Logger = nil // it has much to say
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	defer c.Disconnected()
	for i := range e.cache.Manifest.Len() {
		entry, err := e.cache.Manifest.Entry(sample.Index(i))
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Get(context.Background(), []sample.Index{sample.Index(i)}, nil)
		if wrong := new(source.SampleError); errors.As(err, &wrong) && wrong.Name == entry.Name {
			continue // listed, and changed or gone since
		}
		if err != nil {
			t.Fatalf("sample %d, %s: %v", i, entry.Name, err)
		}
		d.checkListed(t, e, entry, b)
		c.Release(b.Lease)
	}
}

// checkListed compares a sample with the file, if that is still the listed one.
func (d *dataset) checkListed(t *testing.T, e *Engine, entry sample.Entry, b *deliver.Batch) {
	t.Helper()
	mem := e.staging.Memory()
	got := mem[b.Offsets[0]:][:b.Lengths[0]]
	st, err := os.Stat(filepath.Join(d.dir, entry.Name))
	if err != nil || uint64(st.ModTime().UnixNano()) != entry.Version {
		return
	}
	want, err := os.ReadFile(filepath.Join(d.dir, entry.Name))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Fatalf("%s: %d bytes that differ from the file's", entry.Name, len(got))
	}
}
