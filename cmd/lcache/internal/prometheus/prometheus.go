// Package prometheus turns status documents into metrics of Prometheus.
//
// A Collector has the status of several servers, by Add, and is a prometheus.Collector. names.go and the files next to it list the metrics: for each number of the document a
// name, a kind and a help text. Metrics of a job begin with lcache_job_, those of a rank with lcache_rank_, those of a device with lcache_device_; the others are the server's,
// with sums over all its jobs.
//
// Every series has the dataset's name as its label "name", because Prometheus itself sets the label "job". Connected jobs have numbers as labels, because
// their tokens would be new labels for each training. A label must be UTF-8, but a file name may have any bytes: usage.Name writes the labels. Fields that are null give no series. All methods may be called
// concurrently.
package prometheus

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"lcache/internal/serve/status"
)

// A Collector collects the metrics of some servers. The zero value has none.
type Collector struct {
	mu      sync.Mutex // guards the field that follows
	sources []*source
}

// source gives the status of one server.
type source struct {
	name   string // label of its series; "": the job's name in the document
	status func() (status.Document, error)

	mu   sync.Mutex // guards the field that follows
	jobs []string   // tokens of the connected jobs; a job's number is its index. "": no job has this number
}

// Add adds the status of one more server. The label name tells the series of several servers apart; "" takes the job's name in the document. The Collector calls
// status at every scrape, from any goroutine.
func (c *Collector) Add(name string, status func() (status.Document, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources = append(c.sources, &source{name: name, status: status})
}

// Describe sends nothing: which metrics there are depends on the document's nulls.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks every server for its status once. A server that does not answer does not hide the others.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	sources := slices.Clone(c.sources)
	c.mu.Unlock()
	for _, src := range sources {
		s, err := src.status()
		if err != nil {
			to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
			continue
		}
		numbers := src.number(s.Jobs)
		write(to, src.name, s, func(token string) int { return numbers[token] })
	}
}

// number numbers the connected jobs by their tokens. A job keeps its number until it ends; then another one may take it. Number 0 is the job of the
// server's own recipe.
func (s *source) number(jobs []status.Job) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := map[string]bool{}
	for _, j := range jobs {
		if !j.Ended && j.ID != "" {
			live[j.ID] = true
		}
	}
	if len(s.jobs) == 0 {
		s.jobs = []string{""}
	}
	for i, token := range s.jobs {
		if !live[token] {
			s.jobs[i] = ""
		}
	}
	for _, j := range jobs {
		if !live[j.ID] || slices.Contains(s.jobs, j.ID) {
			continue
		}
		free := 1
		for free < len(s.jobs) && s.jobs[free] != "" {
			free++
		}
		if free == len(s.jobs) {
			s.jobs = append(s.jobs, "")
		}
		s.jobs[free] = j.ID
	}
	numbers := map[string]int{}
	for i, token := range s.jobs {
		if token != "" {
			numbers[token] = i
		}
	}
	return numbers
}

// WriteFile writes the metrics to a file, for the textfile collector of node_exporter. It replaces the file in one step.
func (c *Collector) WriteFile(path string) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	return prometheus.WriteToTextfile(path, registry)
}
