package prometheus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"lcache/cmd/lcache/internal/prometheus"
	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/status"
	"lcache/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

// listen starts a server on a free port, which is shut down with the test.
func listen(t *testing.T, log io.Writer) *prometheus.Server {
	t.Helper()
	s, err := prometheus.Listen("127.0.0.1:0", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// scrape reads all series as Prometheus would: name{label="value",…} → value, and each name's family.
func scrape(t *testing.T, s *prometheus.Server) (series map[string]float64, families map[string]*dto.MetricFamily) {
	t.Helper()
	answer, err := http.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s: %s", answer.Status, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if families, err = parser.TextToMetricFamilies(answer.Body); err != nil {
		t.Fatal(err)
	}
	series = map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			value := m.Gauge.GetValue() + m.Counter.GetValue() + m.Untyped.GetValue() // two of them are nil
			series[name+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return series, families
}

// fill gives every field of a document a value of its own; slices get n entries, pointers something to point at.
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
	next := 0
	fill(reflect.ValueOf(&s).Elem(), 2, &next)
	s.Cluster.Peers[0].State, s.Cluster.Peers[1].State = "ok", "lost"
	s.Jobs = s.Jobs[:1]
	s.Jobs[0].Name, s.Jobs[0].ID, s.Jobs[0].Ended = "train", "", false // a job with an ID has it as a label: TestJobs
	return s
}

// summed are the totals that each job has a part of.
var summed = map[string]bool{"chunks_delivered": true, "samples_delivered": true, "bytes_delivered": true, "hits": true, "misses": true, "prefetched_samples": true,
	"skipped_samples": true, "source_bytes": true, "source_reads": true, "stall_seconds": true}

// expected returns the value that each number of a document must have in a scrape. It walks the JSON, as readers do, and does not use Go's structs.
func expected(t *testing.T, s status.Document) map[string]float64 {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var shared []string // the server's figures, which stand in the first job's entry, too
	for key := range document["totals"].(map[string]any) {
		if !summed[key] {
			shared = append(shared, key)
		}
	}
	want := map[string]float64{}
	var walk func(prefix, labels string, object map[string]any)
	walk = func(prefix, labels string, object map[string]any) {
		for key, value := range object {
			switch v := value.(type) {
			case float64:
				want[prefix+key+labels] = v
			case bool:
				want[prefix+key+labels] = map[bool]float64{true: 1}[v]
			case map[string]any:
				if key == "totals" {
					for _, key := range shared {
						walk(prefix, labels, map[string]any{key: v[key]})
						delete(v, key)
					}
				}
				walk(prefix+key+"_", labels, v)
			case []any:
				switch key {
				case "jobs":
					job := v[0].(map[string]any)
					delete(job, "name")
					delete(job, "id")
					delete(job, "pids")
					delete(job, "ended")
					for _, key := range shared {
						delete(job, key)
					}
					walk(prefix, labels, job)
				case "ranks":
					for _, r := range v {
						rank := r.(map[string]any)
						n := rank["rank"]
						delete(rank, "rank")
						walk(prefix+"rank_", fmt.Sprintf("{name=\"train\",rank=\"%v\"}", n), rank)
					}
				case "devices":
					for _, d := range v {
						device := d.(map[string]any)
						walk(prefix[:len("lcache_")]+"device_", fmt.Sprintf("{dir=%q,name=\"train\"}", device["dir"]), device)
					}
				case "peers":
					for _, state := range []string{"ok", "lost", "refused"} {
						want[fmt.Sprintf("%speers{name=\"train\",state=%q}", prefix, state)] = 0
					}
					for _, p := range v {
						want[fmt.Sprintf("%speers{name=\"train\",state=%q}", prefix, p.(map[string]any)["state"])]++
					}
				case "dirs": // texts
				case "epochs_done":
					want[prefix+key+labels] = float64(len(v))
					if len(v) > 0 {
						walk(prefix+"epoch_done_", labels, v[len(v)-1].(map[string]any))
					}
				default:
					t.Errorf("%s is a list that no metric shows", key)
				}
			}
		}
	}
	walk("lcache_", `{name="train"}`, document)
	return want
}

// numbers leaves out the texts, which are 1 and have a label of their own.
func numbers(series map[string]float64) map[string]float64 {
	for name := range series {
		if strings.Contains(name, "text ") && !strings.Contains(name, `{dir="`) || strings.Contains(name, `=""`) || strings.HasPrefix(name, "lcache_device_state") {
			delete(series, name)
		}
	}
	return series
}

func TestEveryNumber(t *testing.T) {
	empty := status.Document{Jobs: []status.Job{{Name: "train", Ranks: []status.Rank{}, EpochsDone: []status.Epoch{}}}}
	for name, doc := range map[string]status.Document{"full": full(), "with nulls": empty} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, t.Output())
			s.Add("", func() (status.Document, error) { return doc, nil })
			series, _ := scrape(t, s)
			got, want := numbers(series), expected(t, doc)
			for name, value := range want {
				if v, ok := got[name]; !ok || v != value {
					t.Errorf("%s: got %v (there: %v), want %v", name, v, ok, value)
				}
			}
			for name := range got {
				if _, ok := want[name]; !ok {
					t.Errorf("%s: not in the document", name)
				}
			}
		})
	}
}

// TestTexts: a word of the document is a label.
func TestTexts(t *testing.T) {
	doc := full()
	doc.Cache.State, doc.Cache.Devices[0].Dir, doc.Jobs[0].BoundBy, doc.Jobs[0].Source = "degraded: /a is aside", "/a", "disk", "/data/tr\xffain"
	s := listen(t, t.Output())
	s.Add("", func() (status.Document, error) { return doc, nil })
	series, _ := scrape(t, s)
	for _, want := range []string{`lcache_cache_state{name="train",state="degraded"}`, `lcache_device_state{dir="/a",name="train",state="` + doc.Cache.Devices[0].State + `"}`, `lcache_bound_by{bound_by="disk",name="train"}`, `lcache_source{name="train",source="/data/tr\\xffain"}`} {
		if series[want] != 1 {
			t.Errorf("%s is %v, want 1", want, series[want])
		}
	}
	for name := range series {
		if strings.Contains(name, "reason") || strings.Contains(name, "digest") || strings.Contains(name, "last_error") {
			t.Errorf("%s would be a new series each time", name)
		}
	}
}

// TestKinds: every metric has a help text, and the contract's counters are counters.
func TestKinds(t *testing.T) {
	s := listen(t, t.Output())
	s.Add("", func() (status.Document, error) { return full(), nil })
	_, families := scrape(t, s)
	for name, f := range families {
		if f.GetHelp() == "" || f.GetType() == dto.MetricType_UNTYPED {
			t.Errorf("%s: add it to names.go as a counter or gauge, with a help text", name)
		}
	}
	for _, name := range []string{"hits", "misses", "samples_delivered", "log_write_bytes", "stall_seconds", "loop_wait_seconds", "corrupt_samples", "divergences"} {
		if f := families["lcache_"+name]; f.GetType() != dto.MetricType_COUNTER {
			t.Errorf("%s is a %v, want a counter", name, f.GetType())
		}
	}
	for _, name := range []string{"epoch", "memory_bytes", "ready_batches", "rank_position", "cache_used_bytes"} {
		if f := families["lcache_"+name]; f.GetType() != dto.MetricType_GAUGE {
			t.Errorf("%s is a %v, want a gauge", name, f.GetType())
		}
	}
}

// TestSeveral: the given names distinguish the series of several servers. A server that does not answer does not hide the others.
func TestSeveral(t *testing.T) {
	var log strings.Builder
	s := listen(t, &log)
	if series, _ := scrape(t, s); len(series) != 0 {
		t.Errorf("without a server: %v", series)
	}
	for i, name := range []string{"train", "val"} {
		doc := full()
		doc.Jobs[0].Hits = int64(i + 1)
		s.Add(name, func() (status.Document, error) { return doc, nil })
	}
	s.Add("gone", func() (status.Document, error) { return status.Document{}, errors.New("the server is gone") })
	series, _ := scrape(t, s)
	if series[`lcache_hits{name="train"}`] != 1 || series[`lcache_hits{name="val"}`] != 2 {
		t.Errorf("hits: %v, %v, want 1 and 2", series[`lcache_hits{name="train"}`], series[`lcache_hits{name="val"}`])
	}
	for name := range series {
		if strings.Contains(name, `name="gone"`) {
			t.Errorf("%s of a server that did not answer", name)
		}
	}
	if !strings.Contains(log.String(), "the server is gone") {
		t.Errorf("the log does not say who did not answer: %s", log.String())
	}
}

func TestListen(t *testing.T) {
	s := listen(t, t.Output())
	addr := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), prometheus.Path)
	want := fmt.Sprintf("address already in use by process %d: choose another --metrics", os.Getpid())
	if _, err := prometheus.Listen(addr, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("twice: %v, want %s", err, want)
	}
	every, err := prometheus.Listen(":0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if host, _, _ := net.SplitHostPort(strings.TrimPrefix(strings.TrimSuffix(every.URL(), prometheus.Path), "http://")); host != "localhost" {
		t.Errorf("on all addresses: %s", every.URL())
	}
	for range 2 {
		if err := every.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
	var none *prometheus.Server
	if err := none.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestShutdownWaits: a scrape that has begun ends before Shutdown does, so what Shutdown is followed by may close what status reads.
func TestShutdownWaits(t *testing.T) {
	s, err := prometheus.Listen("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	entered, leave, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	asked := false
	s.Add("", func() (status.Document, error) {
		close(entered)
		<-leave
		asked = true
		return full(), nil
	})
	go func() {
		defer close(over)
		if answer, err := http.Get(s.URL()); err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	}()
	<-entered
	done := make(chan error)
	go func() { done <- s.Shutdown(context.Background()) }()
	select {
	case err := <-done:
		t.Errorf("ended during a scrape: %v", err)
	default:
	}
	close(leave)
	if err := <-done; err != nil || !asked {
		t.Errorf("%v, asked %v", err, asked)
	}
	<-over
	http.DefaultClient.CloseIdleConnections()
}

// TestJobs: series of a job with a token have it as a label; series of the server's own job have none. Each figure of the server has one series, whichever job comes first,
// so that sums over jobs are right. A job that has ended has no series, because another job may have its token by now.
func TestJobs(t *testing.T) {
	var log strings.Builder
	s := listen(t, &log)
	doc := full()
	owner, own, over := full().Jobs[0], full().Jobs[0], full().Jobs[0]
	owner.ID, owner.Owner, owner.Hits, owner.LogReadBytes = "validation", true, 2, 900
	own.Hits, own.LogReadBytes = 1, 0
	over.ID, over.Hits, over.Ended, over.LogReadBytes = "validation", 40, true, 0
	doc.Jobs = []status.Job{owner, own, over}
	doc.Totals.Hits, doc.Totals.LogReadBytes = 43, 900
	s.Add("train", func() (status.Document, error) { return doc, nil })
	series, families := scrape(t, s)
	if series[`lcache_hits{name="train"}`] != 1 || series[`lcache_hits{job="validation",name="train"}`] != 2 || series[`lcache_totals_hits{name="train"}`] != 43 {
		t.Errorf("hits: %v, want 1, 2 and 43 in all; %s", series, log.String())
	}
	if len(families["lcache_hits"].Metric) != 2 || log.Len() > 0 {
		t.Errorf("%d series of hits, want one of each job that lives; %s", len(families["lcache_hits"].Metric), log.String())
	}
	for _, name := range []string{"lcache_log_read_bytes", "lcache_corrupt_samples", "lcache_consumer_wait_seconds", "lcache_samples", "lcache_kept_bytes", "lcache_source"} {
		f := families[name]
		if len(f.GetMetric()) != 1 || slices.ContainsFunc(f.GetMetric()[0].Label, func(l *dto.LabelPair) bool { return l.GetName() == "job" }) {
			t.Errorf("%s: %v, want one series of the server", name, f.GetMetric())
		}
	}
	if series[`lcache_log_read_bytes{name="train"}`] != 900 {
		t.Errorf("the log's bytes: %v, want 900", series[`lcache_log_read_bytes{name="train"}`])
	}
}

// TestListenNamesTheHolder: the error of an address in use names the process that listens there, whichever of its addresses that process has.
func TestListenNamesTheHolder(t *testing.T) {
	for _, c := range []struct{ held, wanted string }{
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.1", ""},
		{"0.0.0.0", "127.0.0.1"},
		{"[::1]", "[::1]"},
		{"[::1]", ""},
		{"", "127.0.0.1"},
		{"", "[::1]"},
	} {
		held, err := net.Listen("tcp", c.held+":0")
		if err != nil {
			t.Logf("skipped: this machine has no address %s: %v", c.held, err)
			continue
		}
		_, port, _ := net.SplitHostPort(held.Addr().String())
		s, err := prometheus.Listen(c.wanted+":"+port, slog.New(slog.DiscardHandler))
		used := new(prometheus.InUseError)
		if !errors.As(err, &used) || used.Pid != os.Getpid() {
			t.Errorf("%s is held and %s wanted: %v, want process %d", held.Addr(), c.wanted, err, os.Getpid())
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		held.Close()
	}
	if _, err := prometheus.Listen("192.0.2.1:0", slog.New(slog.DiscardHandler)); errors.As(err, new(*prometheus.InUseError)) {
		t.Errorf("an address of another machine: %v", err)
	}
}
