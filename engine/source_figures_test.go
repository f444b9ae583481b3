package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
	"lcache/source"
	"lcache/source/s3test"
)

// figureReaders is the number of concurrent readers, with lcache and without.
const figureReaders = 64

// sourceFigures are the results of TestSourceFigures, one number for each round.
type sourceFigures map[string][]float64

// median is the median of the measurements under a name, and the lowest and highest.
func (f sourceFigures) String() string {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		v := slices.Sorted(slices.Values(f[name]))
		fmt.Fprintf(&b, "\n%-60s %8.3g  (%.3g to %.3g)", name, v[len(v)/2], v[0], v[len(v)-1])
	}
	return b.String()
}

// figureSizes returns how many MB are measured, and how often. Without them the test is skipped.
func figureSizes(t *testing.T) (mb, rounds int) {
	t.Helper()
	mb, err := strconv.Atoi(os.Getenv("LCACHE_FIGURES_MB"))
	if err != nil {
		t.Skip("LCACHE_FIGURES_MB is not set: scripts/bench-sources sets it")
	}
	rounds, err = strconv.Atoi(os.Getenv("LCACHE_FIGURES_ROUNDS"))
	if err != nil {
		t.Fatal(err)
	}
	return mb, rounds
}

// TestSourceFigures measures a bucket on this machine: bare GETs, ingest and an epoch without prefill, by turns. scripts/bench-sources runs it.
func TestSourceFigures(t *testing.T) {
	mb, rounds := figureSizes(t)
	g := s3test.Start(t)
	d := makeDataset(t, mb*10, func(r *rand.Rand, _ int) int { return 50_000 + r.IntN(100_000) })
	d.inBucket(t, g)
	f := sourceFigures{}
	add := func(name string, value float64) { f[name] = append(f[name], value) }
	o := ingest.Options{Job: samplerJob(1, 256, 1, false), Jobs: figureReaders, Memory: 512 << 20, Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}
	total := float64(d.total) / 1e6
	for range rounds {
		if mbps := deviceWrites(t, d.total); mbps > 0 {
			add("0 the device alone, written 1 MiB after the other, MB/s", mbps)
		}
		cpu := cpuSeconds(t)
		bare := bareGets(t, g, d)
		bareCPU := cpuSeconds(t) - cpu
		add("1 bare GETs, MB/s", total/bare)
		add("1 bare GETs, CPU-s/GB with the gateway", bareCPU/total*1000)

		cpu = cpuSeconds(t)
		began := time.Now()
		_, r := ingested(t, d, o)
		whole := time.Since(began).Seconds()
		cpu = cpuSeconds(t) - cpu
		add("2 ingest, MB/s", total/whole)
		add("2 ingest, CPU-s/GB with the gateway", cpu/total*1000)
		add("2 ingest, bare GETs' CPU of its", bareCPU/cpu)
		add("2 ingest, each reader's wait for the source, of its reading", r.SourceWait/r.ReadSeconds)
		add("2 ingest, times bare GETs", bare/whole)
		add("2 ingest, the reading alone, times bare GETs", bare/r.ReadSeconds)
		add("2 ingest, requests per GB", float64(r.Remote.Requests)/total*1000)

		o.NoPrefill = true
		began = time.Now()
		opts, _ := ingested(t, d, o)
		o.NoPrefill = false
		add("3 listing, and making the cache, s", time.Since(began).Seconds())
		began = time.Now()
		e := open(t, opts)
		c := attach(t, e)
		first := time.Duration(0)
		samples, err := drain(c, func() { first = time.Since(began) })
		epoch := time.Since(began).Seconds()
		if err != nil || samples != len(d.bytes) {
			t.Fatalf("%d samples, %v", samples, err)
		}
		add("4 without prefill: first batch of 256 after listing, s", first.Seconds())
		add("4 without prefill: epoch 0, MB/s", total/epoch)
		add("4 without prefill: epoch 0, times bare GETs", bare/epoch)
		c.Disconnected()
		closeEngine(t, e)
	}
	t.Logf("%d objects, %.0f MB, %d readers, medians of %d rounds:%s", len(d.bytes), total, figureReaders, rounds, f)
}

// deviceWrites writes a number of bytes past the page cache, 1 MiB at a time, and returns MB/s; 0: the file system can't do that.
func deviceWrites(t *testing.T, bytes int64) float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "written")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer f.Close()
	mem, err := blockio.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer blockio.Free(mem)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, bytes); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	written := int64(0)
	for ; written+int64(len(mem)) <= bytes; written += int64(len(mem)) {
		if _, err := f.WriteAt(mem, written); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
	return float64(written) / 1e6 / time.Since(began).Seconds()
}

// cpuSeconds returns the processor time of this process and its children.
func cpuSeconds(t *testing.T) (seconds float64) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	self := os.Getpid()
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the state on
		parent, _ := strconv.Atoi(fields[1])
		if parent != self && path != fmt.Sprintf("/proc/%d/stat", self) {
			continue
		}
		for _, ticks := range fields[11:13] {
			n, _ := strconv.ParseFloat(ticks, 64)
			seconds += n / 100
		}
	}
	return seconds
}

// drain reads epoch 0 without checking it, and calls first when its first batch has arrived.
func drain(c *deliver.Client, first func()) (samples int, err error) {
	for b := 0; ; b++ {
		batch, err := c.Chunk(context.Background(), 0, 0, b)
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return samples, err
		}
		if b == 0 {
			first()
		}
		samples += len(batch.Indices)
		c.Release(batch.Lease)
	}
}

// bareGets reads all objects with the SDK alone, and returns how long that took, in seconds.
func bareGets(t *testing.T, g *s3test.Gateway, d *dataset) float64 {
	t.Helper()
	many := http.DefaultTransport.(*http.Transport).Clone()
	many.MaxIdleConns, many.MaxIdleConnsPerHost = 2*figureReaders, 2*figureReaders
	defer many.CloseIdleConnections()
	client := s3.New(s3.Options{HTTPClient: &http.Client{Transport: many}, Region: s3test.Region, BaseEndpoint: aws.String(g.URL), UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider(s3test.Access, s3test.Secret, "")})
	keys := d.keys()
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range figureReaders {
		wg.Go(func() {
			buf := make([]byte, 150_000)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(keys) {
					return
				}
				out, err := client.GetObject(context.Background(), &s3.GetObjectInput{Bucket: aws.String(s3test.Bucket), Key: &keys[i]})
				if err == nil {
					_, err = io.ReadFull(out.Body, buf[:len(d.bytes[i])])
					out.Body.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began).Seconds()
}
