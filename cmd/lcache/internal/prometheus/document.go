package prometheus

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

const prefix = "lcache_"

// Labels of series. A text's own label is its field's name.
const (
	labelName = "name"
	labelRank = "rank"
	labelDir  = "dir"
	labelJob  = "job" // of jobs with a token
)

// unshown lists the fields without a series. Some are labels. Others are texts for people, and each change of a text would make a new series.
var unshown = map[string]bool{"name": true, "id": true, "ended": true, "rank_rank": true, "device_dir": true, "layout_reason": true, "epoch_done_order_digest": true, "epoch_done_requested_digest": true, "importance_name": true, "device_last_error": true, "cluster_refused_reason": true}

// ofDataset are the fields of a job's entry that are the same in each. Their series have no label of a job.
var ofDataset = map[string]bool{"source": true, "samples": true, "dataset_bytes": true, "kept_bytes": true, "layout": true}

// ofServer lists the server's own fields in the totals; the first job's entry has them, too. Their series have no job label, so that a sum over jobs counts
// nothing twice.
var ofServer = tags(reflect.TypeFor[status.ServerFigures]())

func tags(t reflect.Type) map[string]bool {
	all := map[string]bool{}
	for i := range t.NumField() {
		all[t.Field(i).Tag.Get("json")] = true
	}
	return all
}

// writer turns one document into metrics. It takes their names from the document's JSON tags, so it shows new fields without a change here.
type writer struct {
	to     chan<- prometheus.Metric
	labels []string
	values []string
	shows  func(name string) bool // nil: everything
}

func write(to chan<- prometheus.Metric, name string, s status.Document) {
	if name == "" && len(s.Jobs) > 0 {
		name = s.Jobs[0].Name
	}
	w := writer{to: to, labels: []string{labelName}, values: []string{usage.Name(name)}}
	w.object("", reflect.ValueOf(s))
	if len(s.Jobs) > 0 {
		w.shows = func(name string) bool { return ofDataset[name] }
		w.object("", reflect.ValueOf(s.Jobs[0]))
	}
}

// object writes the fields of a struct. The prefix within is made of the names of the structs around it.
func (w writer) object(within string, v reflect.Value) {
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case v.Type().Field(i).Type == reflect.TypeFor[status.ServerFigures]():
			w.object("", v.Field(i))
		case v.Type().Field(i).Anonymous:
			w.object(within, v.Field(i))
		case tag != "" && tag != "-":
			w.field(within, tag, v.Field(i))
		}
	}
}

func (w writer) field(within, tag string, v reflect.Value) {
	name := within + tag
	if w.shows != nil && !w.shows(name) {
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch {
	case v.CanInt():
		w.number(name, float64(v.Int()))
	case v.CanUint():
		w.number(name, float64(v.Uint()))
	case v.CanFloat():
		w.number(name, v.Float())
	case v.Kind() == reflect.Bool:
		n := 0.0
		if v.Bool() {
			n = 1
		}
		w.number(name, n)
	case v.Kind() == reflect.String:
		w.text(name, tag, v.String())
	case v.Kind() == reflect.Struct:
		w.object(name+"_", v)
	case v.Kind() == reflect.Slice:
		w.list(name, v)
	}
}

// list writes a list of the document. A job's fields have no prefix; one that is over has no series any longer, as another one may have its name by now. Ranks and
// devices have a label. Of the epochs that are over it writes the last one and their number: a monitor scrapes more than once an epoch.
func (w writer) list(name string, v reflect.Value) {
	switch of := v.Interface().(type) {
	case []status.Job:
		for _, j := range of {
			if j.Ended {
				continue
			}
			of := w
			of.shows = func(name string) bool { return !ofServer[name] && !ofDataset[name] }
			if j.ID != "" {
				of = of.with(labelJob, j.ID)
			}
			of.object("", reflect.ValueOf(j))
		}
	case []status.Rank:
		for _, r := range of {
			w.with(labelRank, strconv.Itoa(r.Rank)).object("rank_", reflect.ValueOf(r))
		}
	case []status.Device:
		for _, d := range of {
			w.with(labelDir, d.Dir).object("device_", reflect.ValueOf(d))
		}
	case []status.ClusterPeer:
		if len(of) == 0 { // in no cluster
			return
		}
		by := map[string]int{"ok": 0, "lost": 0, "refused": 0}
		for _, p := range of {
			by[p.State]++
		}
		for state, n := range by {
			w.with("state", state).number(name, float64(n))
		}
	case []status.Epoch:
		w.number(name, float64(len(of)))
		if len(of) > 0 {
			w.object("epoch_done_", reflect.ValueOf(of[len(of)-1]))
		}
	}
}

func (w writer) number(name string, n float64) {
	if unshown[name] {
		return
	}
	w.to <- prometheus.MustNewConstMetric(describe(name, w.labels), cmp.Or(names[name].kind, prometheus.UntypedValue), n, w.values...)
}

// text writes a metric with the text as a label. Its value is always 1.
func (w writer) text(name, label, value string) {
	if unshown[name] {
		return
	}
	if name == "cache_state" {
		value, _, _ = strings.Cut(value, ":") // the text after it is for people, and would make a series each time
	}
	with := w.with(label, value)
	w.to <- prometheus.MustNewConstMetric(describe(name, with.labels), prometheus.GaugeValue, 1, with.values...)
}

// with returns a writer of series with one label more.
func (w writer) with(label, value string) writer {
	return writer{w.to, append(slices.Clone(w.labels), label), append(slices.Clone(w.values), usage.Name(value)), w.shows}
}

func describe(name string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, names[name].help, labels, nil)
}
