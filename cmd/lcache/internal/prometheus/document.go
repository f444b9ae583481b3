package prometheus

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

const prefix = "lcache_"

// Labels of series. None is a path, and each has few values.
const (
	labelName   = "name"       // of the dataset, or of the source in lcache run
	labelJob    = "job_number" // of a job among the connected ones
	labelRank   = "rank"
	labelDevice = "device" // its number in --cache
	labelState  = "state"
	labelPeer   = "peer"
)

// Sections of the document, as prefixes of the keys of the tables in names.go.
const (
	ofServer    = ""
	ofCache     = "cache_"
	ofCluster   = "cluster_"
	ofTotals    = "totals_"
	ofDataset   = "dataset_"
	ofJob       = "job_"
	ofRank      = "rank_"
	ofDevice    = "device_"
	ofLastEpoch = "job_last_epoch_"
)

// writer turns one document into metrics.
type writer struct {
	to     chan<- prometheus.Metric
	labels []string
	values []string
}

// write sends the metrics of a document. number returns the number of a job with a token.
func write(to chan<- prometheus.Metric, name string, s status.Document, number func(token string) int) {
	if name == "" && len(s.Jobs) > 0 {
		name = s.Jobs[0].Name
	}
	w := writer{to: to, labels: []string{labelName}, values: []string{usage.Name(name)}}
	w.info("build_info", "1, with the version of the server as a label.", []string{"version"}, []string{s.Version})
	w.object(ofServer, reflect.ValueOf(s))
	w.object(ofTotals, reflect.ValueOf(s.Totals))
	w.cache(s.Cache)
	w.cluster(s.Cluster)
	if s.Totals.BatchWait != nil {
		w.to <- batchWait(w.labels, w.values, s.Totals.BatchWait)
	}
	recipe, layout := "", ""
	if len(s.Jobs) > 0 {
		w.object(ofDataset, reflect.ValueOf(s.Jobs[0]))
		recipe, layout = s.Jobs[0].Recipe, s.Jobs[0].Layout
	}
	w.info("server_info", "1, with the I/O engine, the compression on disk, the layout and the recipe as labels; an empty recipe: the client pushes its own order.",
		[]string{"io_engine", "compress", "layout", "recipe"}, []string{s.IOEngine, s.Cache.Compress, layout, recipe})
	for _, j := range s.Jobs {
		if !j.Ended { // else another job may have its number by now
			w.with(labelJob, strconv.Itoa(number(j.ID))).job(j)
		}
	}
}

func (w writer) cache(c status.Cache) {
	w.object(ofCache, reflect.ValueOf(c))
	state, _, _ := strings.Cut(c.State, ":") // the text after it is for people
	w.states("cache_state", "1 for the present state of the cache's disks: normal, degraded, or aside (all are quarantined).", labelState, state, "normal", "degraded", "aside")
	for i, d := range c.Devices {
		of := w.with(labelDevice, strconv.Itoa(i))
		of.object(ofDevice, reflect.ValueOf(d))
		of.states("device_state", "1 for the present state of the device: normal, read-only, or aside (quarantined).", labelState, d.State, "normal", "read-only", "aside")
	}
}

func (w writer) job(j status.Job) {
	w.object(ofJob, reflect.ValueOf(j))
	w.number("job_epochs_done", float64(len(j.EpochsDone)))
	w.states("job_bound_by", "1 for the bottleneck of the job: source, disk, consumer (the training loop), decode, peer (other machines) or unknown.", "bound_by", j.BoundBy, "source", "disk", "consumer", "decode", "peer", "unknown")
	for _, r := range j.Ranks {
		w.with(labelRank, strconv.Itoa(r.Rank)).object(ofRank, reflect.ValueOf(r))
	}
	if n := len(j.EpochsDone); n > 0 { // a monitor scrapes more than once an epoch
		w.object(ofLastEpoch, reflect.ValueOf(j.EpochsDone[n-1]))
	}
	if j.Importance != nil {
		w.importance(j.Importance)
	}
}

// object writes the numbers of a struct that the tables name. section begins the keys.
func (w writer) object(section string, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			w.object(section, v.Field(i))
			continue
		}
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if n, ok := number(v.Field(i)); ok {
			w.number(section+tag, n)
		}
	}
}

// number returns the value of a number or bool, or of a pointer to one; false: it is none, or nil.
func number(v reflect.Value) (float64, bool) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	case v.CanFloat():
		return v.Float(), true
	case v.Kind() == reflect.Bool && v.Bool():
		return 1, true
	case v.Kind() == reflect.Bool:
		return 0, true
	}
	return 0, false
}

// number writes a metric of the tables. A key that they do not have has no metric.
func (w writer) number(key string, n float64) {
	m, ok := names[key]
	if !ok {
		return
	}
	w.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.fullName(key), m.help, w.labels, nil), m.kind, n, w.values...)
}

// info writes a metric that is 1 and has texts as labels.
func (w writer) info(name, help string, labels, values []string) {
	for i := range labels {
		w = w.with(labels[i], values[i])
	}
	w.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(prefix+name, help, w.labels, nil), prometheus.GaugeValue, 1, w.values...)
}

// states writes a series for each possible state: 1 for the present one, else 0.
func (w writer) states(name, help, label, now string, all ...string) {
	if now != "" && !slices.Contains(all, now) {
		all = append(all, now)
	}
	for _, state := range all {
		n := 0.0
		if state == now {
			n = 1
		}
		of := w.with(label, state)
		of.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(prefix+name, help, of.labels, nil), prometheus.GaugeValue, n, of.values...)
	}
}

// with returns a writer of series with one label more.
func (w writer) with(label, value string) writer {
	return writer{w.to, append(slices.Clone(w.labels), label), append(slices.Clone(w.values), usage.Name(value))}
}

// counter writes a counter.
func (w writer) counter(name, help string, n float64) {
	w.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(prefix+name, help, w.labels, nil), prometheus.CounterValue, n, w.values...)
}

// gauge writes a number that is no field of the document.
func (w writer) gauge(name, help string, n float64) {
	w.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(prefix+name, help, w.labels, nil), prometheus.GaugeValue, n, w.values...)
}
