package monitor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/monitor"
	"lcache/internal/serve/status"
)

// busy returns the status of a server that reads, some seconds after its start.
func busy(seconds float64) status.Document {
	some := func(n float64) *float64 { return &n }
	digest := "51c0ffee"
	d := document()
	d.Version, d.Pid, d.UptimeSeconds, d.IOEngine, d.Direct = "0.1.0", 4711, seconds, "io_uring", true
	d.MemoryBytes, d.MemoryLimitBytes, d.RSS = 1.4e9, 1.5e9, 1.5e9
	d.Cache.BudgetBytes, d.Cache.UsedBytes, d.Cache.BlockBytes = 141e9, 138e9, 1<<20
	d.Cache.Devices[1] = status.Device{Dir: "/nvme1/lcache", State: "aside", Errors: 3, LastError: "read: input/output error", Blocks: 1000}
	job := status.Job{ID: "run-7", Owner: true, Name: "imagenet/train", Source: "/data/imagenet/train", Samples: 1281167, DatasetBytes: 138e9, KeptBytes: 138e9, Layout: "log", LayoutReason: "the disk gives 307 MB/s random, 503 MB/s in order",
		Epochs: 90, Epoch: 3, Batches: 5005, SamplesDelivered: int64(4450 * seconds), BytesDelivered: int64(480e6 * seconds), HitsEpoch: 10, ChunksDelivered: int64(17 * seconds), BoundBy: "consumer", ReadyBatches: 24,
		LoopWaitSeconds: some(0.002 * seconds), LoopSeconds: some(seconds),
		Ranks:      []status.Rank{{Rank: 0, Pid: 4712, Epoch: 3, Position: 2104, Readiness: some(0.999), LeasedBytes: 55e6, LoopWaitSeconds: some(0)}, {Rank: 1, Pid: 4713, Epoch: 3, Position: 2100, Readiness: some(0.71)}},
		EpochsDone: []status.Epoch{{Epoch: 2, Seconds: 277, Hits: 1281167, LogReadBytes: 138e9, OrderDigest: &digest}}}
	val := status.Job{ID: "validation", Name: "imagenet/train", Epochs: 1, BoundBy: "unknown", SamplesDelivered: 10}
	d.Jobs = []status.Job{job, val}
	d.Totals = status.Totals{BytesDelivered: job.BytesDelivered, SamplesDelivered: job.SamplesDelivered, ServerFigures: status.ServerFigures{LogReadBytes: int64(478e6 * seconds), LogWriteBytes: int64(476e6 * seconds)}}
	d.Events = []status.Event{{Time: "2026-11-26T19:11:47Z", Kind: "started", Text: "the server started"}, {Time: "2026-11-26T19:12:47Z", Kind: "device", Text: `/nvme1/lcache was quarantined: <script>alert("x")</script>`}}
	return d
}

// TestPage: the page is one document that asks no other host for anything, and says so to the browser.
func TestPage(t *testing.T) {
	s := listen(t, monitor.Options{})
	answer, err := http.Get(s.PageURL())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	policy := answer.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "script-src 'sha256-", "style-src 'sha256-", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the policy is open: %s", policy)
	}
	_, text := get(t, s.PageURL(), nil)
	for _, foreign := range []string{" src=", `href="http`, "@import", "url(", "{{"} {
		if strings.Contains(text, foreign) {
			t.Errorf("the page has %s", foreign)
		}
	}
	if !strings.Contains(text, "uPlot (v1.6") {
		t.Error("uPlot's note of its author is gone")
	}
	for _, path := range []string{"index.html", "page.js", "x"} {
		if code, _ := get(t, s.PageURL()+path, nil); code != http.StatusNotFound {
			t.Errorf("/%s: %d", path, code)
		}
	}
}

// follow returns the documents of a stream, until the test ends.
func follow(t *testing.T, s *monitor.Server) func(kind string) json.RawMessage {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, s.PageURL()+"stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %s", answer.Status, answer.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return func(kind string) json.RawMessage {
		t.Helper()
		for found := false; lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && found {
				return json.RawMessage(text)
			}
			found = found && lines.Text() != "" || lines.Text() == "event: "+kind
		}
		t.Fatalf("no %s: %v", kind, lines.Err())
		return nil
	}
}

type seen struct {
	Ready   bool
	Servers []struct {
		Name, Error, Progress string
		Headline              struct{ Kind, Text string }
		Warnings              []string
		Tables                []struct {
			Title string
			Rows  [][]string
		}
		Events []status.Event
	}
}

// TestStream: a viewer gets the past, and then the present again and again.
func TestStream(t *testing.T) {
	s := listen(t, monitor.Options{})
	next := follow(t, s)
	var first, second seen
	if err := json.Unmarshal(next("now"), &first); err != nil || first.Ready || len(first.Servers) != 0 {
		t.Errorf("while the source is listed: %+v, %v", first, err)
	}
	began := time.Now()
	s.Add("", func() (status.Document, error) { return busy(100 + time.Since(began).Seconds()), nil })
	s.SetReady()
	for len(second.Servers) == 0 || second.Servers[0].Headline.Kind != "good" {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("after 30 s: %+v", second)
		}
		second = seen{}
		if err := json.Unmarshal(next("now"), &second); err != nil {
			t.Fatal(err)
		}
	}
	v := second.Servers[0]
	if v.Name != "imagenet/train" || v.Headline.Text != "The training loop is the limit: 24 batches were ready" || !strings.HasPrefix(v.Progress, "epoch 3 · batch 2,102 / 5,005 · 42 %") {
		t.Errorf("%+v", v)
	}
	if len(v.Warnings) != 1 || !strings.HasPrefix(v.Warnings[0], "/nvme1/lcache is quarantined (read: input/output error)") {
		t.Errorf("warnings: %q", v.Warnings)
	}
	rows := map[string]int{}
	for _, table := range v.Tables {
		rows[table.Title] = len(table.Rows)
	}
	if rows["Jobs"] != 2 || rows["Ranks"] != 2 || rows["Epochs"] != 1 || rows["Devices"] != 2 || len(v.Events) != 2 {
		t.Errorf("rows of tables: %v; %d events", rows, len(v.Events))
	}
	var past [][][]*float64
	if err := json.Unmarshal(follow(t, s)("past"), &past); err != nil || len(past) != 1 || len(past[0]) != 6 {
		t.Errorf("the past: %v, %v", past, err)
	}
}

// TestPageNeedsToken: at an address that other machines reach, the page needs a token to be set. Metrics do not.
func TestPageNeedsToken(t *testing.T) {
	open, guarded := listen(t, monitor.Options{Addr: "0.0.0.0:0"}), listen(t, monitor.Options{Addr: "0.0.0.0:0", Token: "0123456789abcdef"})
	for url, want := range map[string]int{open.PageURL(): http.StatusForbidden, open.PageURL() + "stream": http.StatusForbidden, open.URL(): http.StatusOK,
		guarded.PageURL(): http.StatusUnauthorized, guarded.PageURL() + "stream": http.StatusUnauthorized} {
		if code, _ := get(t, url, nil); code != want {
			t.Errorf("%s: %d, want %d", url, code, want)
		}
	}
	if code, _ := get(t, guarded.PageURL(), func(r *http.Request) { r.SetBasicAuth("", "0123456789abcdef") }); code != http.StatusOK {
		t.Errorf("with the token: %d", code)
	}
}

// TestViewersEnd: Shutdown ends the streams, and a stream too many is refused.
func TestViewersEnd(t *testing.T) {
	s := listen(t, monitor.Options{})
	for range 16 {
		follow(t, s)("now")
	}
	if code, text := get(t, s.PageURL()+"stream", nil); code != http.StatusServiceUnavailable || !strings.Contains(text, "16 people") {
		t.Errorf("the 17th: %d %s", code, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
