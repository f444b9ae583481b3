package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"lcache/internal/serve/status"
)

// The native histogram of the status document: eight buckets for each power of two. Waits of 0 are in the first bucket, so the zero bucket is empty.
const (
	nativeSchema  = 3
	zeroThreshold = 0x1p-128
)

// histogram is a histogram of the document as a metric, with classic and native buckets. Prometheus takes the native ones if it has that feature.
type histogram struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	waits  *status.Waits
}

func batchWait(labels, values []string, waits *status.Waits) prometheus.Metric {
	desc := prometheus.NewDesc(prefix+"batch_wait_seconds", "Time from a request for a batch, or for samples by index, to its answer, in seconds. The training loop waits less if it requests ahead.", labels, nil)
	return histogram{desc: desc, labels: prometheus.MakeLabelPairs(desc, values), waits: waits}
}

// Desc is of prometheus.Metric.
func (h histogram) Desc() *prometheus.Desc { return h.desc }

// Write is of prometheus.Metric.
func (h histogram) Write(to *dto.Metric) error {
	w := h.waits
	out := &dto.Histogram{SampleCount: new(uint64(w.Count)), SampleSum: new(w.SumSeconds), Schema: new(int32(nativeSchema)), ZeroThreshold: new(float64(zeroThreshold)), ZeroCount: new(uint64(0))}
	for i, bound := range w.Bounds[:min(len(w.Bounds), len(w.Cumulative))] {
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: new(bound), CumulativeCount: new(uint64(w.Cumulative[i]))})
	}
	out.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(w.First)), Length: new(uint32(len(w.Native)))}} // also without a wait: it tells native histograms apart
	before := int64(0)
	for _, n := range w.Native {
		out.PositiveDelta = append(out.PositiveDelta, n-before)
		before = n
	}
	to.Label, to.Histogram = h.labels, out
	return nil
}
