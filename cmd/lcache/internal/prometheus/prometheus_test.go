package prometheus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"lcache/cmd/lcache/internal/prometheus"
	"lcache/internal/serve/status"
)

// gather returns all series, name{label="value",…} → value, and each name's family.
func gather(t *testing.T, c *prometheus.Collector) (series map[string]float64, families map[string]*dto.MetricFamily) {
	t.Helper()
	series, families, err := gathered(c)
	if err != nil {
		t.Fatal(err)
	}
	return series, families
}

func gathered(c *prometheus.Collector) (series map[string]float64, families map[string]*dto.MetricFamily, err error) {
	registry := client.NewPedanticRegistry()
	registry.MustRegister(c)
	all, err := registry.Gather()
	series, families = map[string]float64{}, map[string]*dto.MetricFamily{}
	for _, family := range all {
		families[family.GetName()] = family
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			series[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.Gauge.GetValue() + m.Counter.GetValue() + m.Histogram.GetSampleSum()
		}
	}
	return series, families, err
}

func collectorOf(docs ...status.Document) *prometheus.Collector {
	var c prometheus.Collector
	for i, doc := range docs {
		name := ""
		if i > 0 {
			name = fmt.Sprint("source ", i)
		}
		c.Add(name, func() (status.Document, error) { return doc, nil })
	}
	return &c
}

// fill gives every number of a document a value of its own; slices get n entries, pointers something to point at.
func fill(v reflect.Value, n int, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n, next)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n, next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), n, next)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*next) + 0.5)
	default:
		v.SetInt(int64(*next))
	}
}

func full() status.Document {
	var s status.Document
	next := 1000
	fill(reflect.ValueOf(&s).Elem(), 2, &next)
	s.Cluster.State = "ok"
	s.Cluster.Peers[0].State, s.Cluster.Peers[1].State = "ok", "lost"
	s.Cluster.Peers[1].Host, s.Cluster.Peers[1].InBytes = "gpu-02", 12
	s.Jobs = s.Jobs[:1]
	s.Jobs[0].Name, s.Jobs[0].ID, s.Jobs[0].Ended = "train", "run-7", false
	s.Totals.BatchWait = &status.Waits{Count: 6, SumSeconds: 3.5, Bounds: []float64{0.1, 1}, Cumulative: []int64{1, 5}, First: -30, Native: []int64{1, 0, 4, 1}}
	return s
}

// TestEveryNumber: each number of the document is the value of one series, or this test says why not.
func TestEveryNumber(t *testing.T) {
	doc := full()
	series, _ := gather(t, collectorOf(doc))
	shown := map[float64]bool{}
	for _, v := range series {
		shown[v] = true
	}
	// A number of a process, a rank or a version is no quantity; a position of the first divergence says nothing without the others; the rate of refused messages says more than their age.
	unshown := map[string]bool{"schema": true, "pid": true, "jobs.pids": true, "jobs.ranks.rank": true, "jobs.ranks.pid": true, "cluster.refused_seconds_ago": true,
		"jobs.first_divergence.epoch": true, "jobs.first_divergence.rank": true, "jobs.first_divergence.batch": true, "jobs.first_divergence.position": true}
	ofServer := map[string]bool{} // figures of the totals that the first job's entry has, too
	for i := range reflect.TypeFor[status.ServerFigures]().NumField() {
		ofServer["jobs."+reflect.TypeFor[status.ServerFigures]().Field(i).Tag.Get("json")] = true
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	missing, numbers := map[string]bool{}, 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				walk(strings.TrimPrefix(path+"."+key, "."), value)
			}
		case []any:
			if strings.HasSuffix(path, "epochs_done") {
				v = v[len(v)-1:] // the last epoch alone
			}
			for _, value := range v {
				walk(path, value)
			}
		case float64:
			if unshown[path] || ofServer[path] || strings.HasPrefix(path, "totals.batch_wait") || strings.HasPrefix(path, "cluster.peers") {
				return
			}
			if numbers++; !shown[v] {
				missing[path] = true
			}
		}
	}
	walk("", document)
	for path := range missing {
		t.Errorf("%s is in no series: add it to names.go with a kind and a help text, or say here why not", path)
	}
	if numbers < 120 {
		t.Errorf("only %d numbers were compared", numbers)
	}
}

// TestLint: the linter of Prometheus finds nothing, with everything in the document and with as little as there may be.
func TestLint(t *testing.T) {
	empty := status.Document{Cluster: status.Cluster{State: "off"}, Jobs: []status.Job{{Name: "train", Ranks: []status.Rank{}, EpochsDone: []status.Epoch{}}}}
	for name, c := range map[string]*prometheus.Collector{"full": collectorOf(full()), "with nulls": collectorOf(empty), "two": collectorOf(full(), empty), "none": collectorOf()} {
		registry := client.NewPedanticRegistry()
		registry.MustRegister(c)
		problems, err := testutil.GatherAndLint(registry)
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", name, problems, err)
		}
		promtool, err := exec.LookPath("promtool")
		if err != nil {
			t.Log("promtool is not installed: only client_golang's linter was run (apt-get install prometheus)")
			continue
		}
		path := filepath.Join(t.TempDir(), "metrics.prom")
		if err := c.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(promtool, "check", "metrics")
		cmd.Stdin = in
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: promtool: %v\n%s", name, err, out)
		}
		in.Close()
	}
}

// TestNames: the names that the contract has, their kinds, and no label beyond the few.
func TestNames(t *testing.T) {
	_, families := gather(t, collectorOf(full()))
	for name, kind := range map[string]dto.MetricType{
		"lcache_hits_total": dto.MetricType_COUNTER, "lcache_misses_total": dto.MetricType_COUNTER, "lcache_log_read_bytes_total": dto.MetricType_COUNTER,
		"lcache_stall_seconds_total": dto.MetricType_COUNTER, "lcache_job_loop_wait_seconds_total": dto.MetricType_COUNTER, "lcache_corrupt_samples_total": dto.MetricType_COUNTER,
		"lcache_build_info": dto.MetricType_GAUGE, "lcache_memory_bytes": dto.MetricType_GAUGE, "lcache_job_readiness": dto.MetricType_GAUGE, "lcache_rank_readiness": dto.MetricType_GAUGE,
		"lcache_cache_used_bytes": dto.MetricType_GAUGE, "lcache_batch_wait_seconds": dto.MetricType_HISTOGRAM,
	} {
		if f := families[name]; f == nil || f.GetType() != kind {
			t.Errorf("%s is a %v, want a %v", name, f.GetType(), kind)
		}
	}
	allowed := []string{"name", "job_number", "rank", "device", "state", "bound_by", "version", "io_engine", "compress", "layout", "peer", "recipe", "method", "lag", "policy", "substitute"}
	for name, f := range families {
		if !strings.HasPrefix(name, "lcache_") || f.GetHelp() == "" {
			t.Errorf("%s: help %q", name, f.GetHelp())
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if !slices.Contains(allowed, l.GetName()) {
					t.Errorf("%s has the label %s=%q: a label must have few values and be no path", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
}

// TestNoPathsAndTokens: neither directories nor sources nor tokens of jobs are in the metrics.
func TestNoPathsAndTokens(t *testing.T) {
	doc := full()
	secrets := []string{"/nvme/marked-cache", "/data/marked-source", "marked-token", "marked-error", "marked-address", "marked-roster", "marked-reason"}
	doc.Cache.Dirs, doc.Cache.Devices[0].Dir, doc.Jobs[0].Source, doc.Jobs[0].ID = []string{secrets[0]}, secrets[0], secrets[1], secrets[2]
	doc.Cache.State, doc.Cache.Devices[0].LastError = "degraded: "+secrets[0]+" is aside", secrets[3]
	doc.Cluster.Listen, doc.Cluster.Roster, doc.Cluster.Reason = secrets[4], secrets[5], secrets[6]
	series, _ := gather(t, collectorOf(doc))
	for name := range series {
		for _, secret := range secrets {
			if strings.Contains(name, secret) {
				t.Errorf("%s has %s", name, secret)
			}
		}
	}
	if series[`lcache_cache_state{name="train",state="degraded"}`] != 1 || series[`lcache_cache_state{name="train",state="normal"}`] != 0 {
		t.Error("the state is not degraded")
	}
}

// TestStates: exactly one state of each set is 1, also one that this program does not know.
func TestStates(t *testing.T) {
	doc := full()
	doc.Jobs[0].BoundBy, doc.Cache.Devices[0].State, doc.Cache.State = "disk", "read-only", "of the future"
	series, _ := gather(t, collectorOf(doc))
	for name, want := range map[string]float64{
		`lcache_job_bound_by{bound_by="disk",job_number="1",name="train"}`:   1,
		`lcache_job_bound_by{bound_by="source",job_number="1",name="train"}`: 0,
		`lcache_device_state{device="0",name="train",state="read-only"}`:     1,
		`lcache_device_state{device="0",name="train",state="normal"}`:        0,
		`lcache_cache_state{name="train",state="of the future"}`:             1,
		`lcache_cluster_peers{name="train",state="ok"}`:                      1,
		`lcache_cluster_peers{name="train",state="refused"}`:                 0,
		`lcache_peer_up{name="train",peer="gpu-02"}`:                         0,
		`lcache_peer_in_bytes_total{name="train",peer="gpu-02"}`:             12,
		`lcache_build_info{name="train",version="` + doc.Version + `"}`:      1,
	} {
		if got, ok := series[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
		}
	}
}

// TestHistogram: classic and native buckets are those of the document.
func TestHistogram(t *testing.T) {
	_, families := gather(t, collectorOf(full()))
	h := families["lcache_batch_wait_seconds"].Metric[0].Histogram
	if h.GetSampleCount() != 6 || h.GetSampleSum() != 3.5 || len(h.Bucket) != 2 || h.Bucket[1].GetUpperBound() != 1 || h.Bucket[1].GetCumulativeCount() != 5 {
		t.Errorf("classic: %v", h)
	}
	if h.GetSchema() != 3 || len(h.PositiveSpan) != 1 || h.PositiveSpan[0].GetOffset() != -30 || h.PositiveSpan[0].GetLength() != 4 || !slices.Equal(h.PositiveDelta, []int64{1, -1, 4, -3}) {
		t.Errorf("native: %v", h)
	}
	older := full()
	older.Totals.BatchWait = nil
	if _, families := gather(t, collectorOf(older)); families["lcache_batch_wait_seconds"] != nil {
		t.Error("a server without the histogram has one")
	}
}

// TestJobs: series of a job have its number; the server's figures have none, so that sums over jobs are right. A job that has ended has no series.
func TestJobs(t *testing.T) {
	doc := full()
	owner, own, over := full().Jobs[0], full().Jobs[0], full().Jobs[0]
	owner.ID, owner.Hits = "validation", 2
	own.ID, own.Hits = "", 1
	over.ID, over.Hits, over.Ended = "before", 40, true
	doc.Jobs = []status.Job{owner, own, over}
	doc.Totals.Hits, doc.Totals.LogReadBytes = 43, 900
	series, families := gather(t, collectorOf(doc))
	if series[`lcache_job_hits_total{job_number="0",name="train"}`] != 1 || series[`lcache_job_hits_total{job_number="1",name="train"}`] != 2 || series[`lcache_hits_total{name="train"}`] != 43 {
		t.Errorf("hits: %v, want 1, 2 and 43 in all", series)
	}
	if n := len(families["lcache_job_hits_total"].Metric); n != 2 {
		t.Errorf("%d series of hits, want one of each job that lives", n)
	}
	for _, name := range []string{"lcache_log_read_bytes_total", "lcache_corrupt_samples_total", "lcache_consumer_wait_seconds_total", "lcache_samples", "lcache_kept_bytes", "lcache_server_info"} {
		if f := families[name]; len(f.GetMetric()) != 1 {
			t.Errorf("%s: %v, want one series of the server", name, f.GetMetric())
		}
	}
	if series[`lcache_log_read_bytes_total{name="train"}`] != 900 {
		t.Errorf("the log's bytes: %v, want 900", series[`lcache_log_read_bytes_total{name="train"}`])
	}
}

// TestNumbersOfJobs: a job keeps its number while it lives; a thousand jobs, one after another, have one number.
func TestNumbersOfJobs(t *testing.T) {
	doc := full()
	var c prometheus.Collector
	c.Add("", func() (status.Document, error) { return doc, nil })
	numbers := func(tokens ...string) (got []string) {
		doc.Jobs = nil
		for i, token := range tokens {
			j := full().Jobs[0]
			j.ID, j.Hits = token, int64(i+1)
			doc.Jobs = append(doc.Jobs, j)
		}
		series, _ := gather(t, &c)
		for i := range tokens {
			for name, v := range series {
				if strings.HasPrefix(name, "lcache_job_hits_total") && v == float64(i+1) {
					got = append(got, strings.Split(name, `"`)[1])
				}
			}
		}
		return got
	}
	for _, c := range []struct{ tokens, want []string }{
		{[]string{"a", "b"}, []string{"1", "2"}},
		{[]string{"b", "a", "c"}, []string{"2", "1", "3"}},
		{[]string{"b", "c"}, []string{"2", "3"}},
		{[]string{"d", "b", "c", ""}, []string{"1", "2", "3", "0"}},
		{nil, nil},
	} {
		if got := numbers(c.tokens...); !slices.Equal(got, c.want) {
			t.Errorf("%q: numbers %q, want %q", c.tokens, got, c.want)
		}
	}
	for i := range 1000 {
		if got := numbers(fmt.Sprint("run ", i)); !slices.Equal(got, []string{"1"}) {
			t.Fatalf("run %d has number %q", i, got)
		}
	}
}

// TestSeveral: the given names distinguish the series of several servers. A server that does not answer does not hide the others.
func TestSeveral(t *testing.T) {
	var c prometheus.Collector
	for i, name := range []string{"train", "val"} {
		doc := full()
		doc.Totals.Hits = int64(i + 1)
		c.Add(name, func() (status.Document, error) { return doc, nil })
	}
	c.Add("gone", func() (status.Document, error) { return status.Document{}, errors.New("the server is gone") })
	series, _, err := gathered(&c)
	if series[`lcache_hits_total{name="train"}`] != 1 || series[`lcache_hits_total{name="val"}`] != 2 {
		t.Errorf("hits: %v, %v, want 1 and 2", series[`lcache_hits_total{name="train"}`], series[`lcache_hits_total{name="val"}`])
	}
	for name := range series {
		if strings.Contains(name, `name="gone"`) {
			t.Errorf("%s of a server that did not answer", name)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "the server is gone") {
		t.Errorf("the error does not say who did not answer: %v", err)
	}
}

// TestWriteFile: the file is what the textfile collector of node_exporter reads, also for names of any bytes.
func TestWriteFile(t *testing.T) {
	doc := full()
	doc.Jobs[0].Name = "tr\xffain"
	path := filepath.Join(t.TempDir(), "lcache.prom")
	if err := collectorOf(doc).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`lcache_build_info{name="tr\\xffain",version=`, "# TYPE lcache_batch_wait_seconds histogram", `lcache_batch_wait_seconds_bucket{name="tr\\xffain",le="+Inf"} 6`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in the file", want)
		}
	}
	if err := collectorOf(doc).WriteFile(filepath.Join(t.TempDir(), "none", "lcache.prom")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no folder: %v", err)
	}
}
