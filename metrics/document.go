package metrics

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"lcache/engine"
)

const prefix = "lcache_"

// Labels beside that of a text.
const (
	labelName = "name"
	labelRank = "rank"
	labelDir  = "dir"
)

// unshown are the fields that the labels stand for, and texts that would make a new series each time they change, or say nothing to a
// machine.
var unshown = map[string]bool{"name": true, "rank_rank": true, "device_dir": true, "layout_reason": true, "epoch_done_order_digest": true, "device_last_error": true}

// writer turns one document into metrics. Names come from the document's own JSON names, so a field that is added there is shown here.
type writer struct {
	to     chan<- prometheus.Metric
	labels []string
	values []string
}

func write(to chan<- prometheus.Metric, name string, s engine.Status) {
	if name == "" && len(s.Jobs) > 0 {
		name = s.Jobs[0].Name
	}
	w := writer{to: to, labels: []string{labelName}, values: []string{valid(name)}}
	w.object("", reflect.ValueOf(s))
}

// object writes the fields of a struct, each under the names of what it lies in.
func (w writer) object(within string, v reflect.Value) {
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if tag != "" && tag != "-" {
			w.field(within, tag, v.Field(i))
		}
	}
}

func (w writer) field(within, tag string, v reflect.Value) {
	name := within + tag
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

// list writes the lists of the document: jobs, whose one entry has no name of its own; ranks and devices, told apart by a label; and the epochs
// that are over, of which a monitor that asks more than once an epoch needs only the last, and how many they are.
func (w writer) list(name string, v reflect.Value) {
	switch of := v.Interface().(type) {
	case []engine.JobStatus:
		for _, j := range of {
			w.object("", reflect.ValueOf(j))
		}
	case []engine.RankStatus:
		for _, r := range of {
			w.with(labelRank, strconv.Itoa(r.Rank)).object("rank_", reflect.ValueOf(r))
		}
	case []engine.DeviceStatus:
		for _, d := range of {
			w.with(labelDir, d.Dir).object("device_", reflect.ValueOf(d))
		}
	case []engine.EpochDone:
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

// text writes a metric that is always 1 and has the text as a label.
func (w writer) text(name, label, value string) {
	if unshown[name] {
		return
	}
	if name == "cache_state" {
		value, _, _ = strings.Cut(value, ":") // what follows is for people, and different each time
	}
	with := w.with(label, value)
	w.to <- prometheus.MustNewConstMetric(describe(name, with.labels), prometheus.GaugeValue, 1, with.values...)
}

// with is the writer of series that have one label more.
func (w writer) with(label, value string) writer {
	return writer{w.to, append(slices.Clone(w.labels), label), append(slices.Clone(w.values), valid(value))}
}

func describe(name string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, names[name].help, labels, nil)
}

// valid is a text as a label may have it: names of files may be any bytes.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
