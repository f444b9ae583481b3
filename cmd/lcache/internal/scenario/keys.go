package scenario

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lcache/cmd/lcache/internal/simulate"
	"lcache/internal/usage"
)

// key is a line of a scenario file: its name and the field that it sets.
type key struct {
	name, unit, meaning string
	set                 func(s *Scenario, value string) error
}

// keys are the keys of a scenario file, in the order of its documentation.
var keys = []key{
	{"title", "text", "title in the picture", func(s *Scenario, value string) error { s.Title = value; return nil }},
	{"workers", "", "number of nodes in the training", func(s *Scenario, value string) error {
		n, err := number(value)
		s.Machine.Workers = int(min(n, 1e9))
		return err
	}},
	{"compute", "MB/s", "what one worker consumes", rate(func(s *Scenario) *float64 { return &s.Machine.Compute })},
	{"preprocess", "MB/s", "rate at which the CPUs of one worker decode", rate(func(s *Scenario) *float64 { return &s.Machine.Preprocess })},
	{"network", "MB/s", "between two workers", rate(func(s *Scenario) *float64 { return &s.Machine.Network })},
	{"pfs", "table", "rate of the source for that many workers together, in MB/s", table(func(s *Scenario) *simulate.Table { return &s.Machine.PFS })},
	{"staging", "size", "the buffer of samples that are ready", capacity(0)},
	{"ram", "size", "memory of one worker for samples", capacity(1)},
	{"ssd", "size", "SSD of one worker for samples", capacity(2)},
	{"staging_threads", "", "threads that prefetch", rate(func(s *Scenario) *float64 { return &s.Machine.Threads[0] })},
	{"ram_threads", "", "threads that read memory", rate(func(s *Scenario) *float64 { return &s.Machine.Threads[1] })},
	{"ssd_threads", "", "threads that read the SSD", rate(func(s *Scenario) *float64 { return &s.Machine.Threads[2] })},
	{"staging_read", "table", "rate of the buffer for that many threads together, in MB/s", table(func(s *Scenario) *simulate.Table { return &s.Machine.Read[0] })},
	{"ram_read", "table", "the same of memory", table(func(s *Scenario) *simulate.Table { return &s.Machine.Read[1] })},
	{"ssd_read", "table", "the same of the SSD", table(func(s *Scenario) *simulate.Table { return &s.Machine.Read[2] })},
	{"samples", "", "of the dataset", rate(func(s *Scenario) *float64 { return &s.Workload.Samples })},
	{"sample_mean", "size", "the mean size of a sample", megabytes(func(s *Scenario) *float64 { return &s.Workload.MeanMB })},
	{"sample_sigma", "size", "its standard deviation", megabytes(func(s *Scenario) *float64 { return &s.Workload.SigmaMB })},
	{"batch", "", "samples of one worker's mini-batch", rate(func(s *Scenario) *float64 { return &s.Workload.Batch })},
	{"epochs", "", "of the training", rate(func(s *Scenario) *float64 { return &s.Workload.Epochs })},
}

// Keys are the names of all keys.
func Keys() (names []string) {
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}

// Set sets one key to a value, as a line of a file does.
func (s *Scenario) Set(name, value string) error {
	for _, k := range keys {
		if k.name == name {
			if err := k.set(s, value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}
	}
	if near := usage.Nearest(name, Keys()); near != "" {
		return fmt.Errorf("%s is not a key: did you mean %s?", name, near)
	}
	return fmt.Errorf("%s is not a key: the keys are %s", name, strings.Join(Keys(), ", "))
}

func rate(field func(*Scenario) *float64) func(*Scenario, string) error {
	return func(s *Scenario, value string) error {
		n, err := number(value)
		if err == nil {
			*field(s) = n
		}
		return err
	}
}

func capacity(class int) func(*Scenario, string) error {
	return megabytes(func(s *Scenario) *float64 { return &s.Machine.Capacity[class] })
}

func megabytes(field func(*Scenario) *float64) func(*Scenario, string) error {
	return func(s *Scenario, value string) error {
		n, err := size(value)
		if err == nil {
			*field(s) = n
		}
		return err
	}
}

func table(field func(*Scenario) *simulate.Table) func(*Scenario, string) error {
	return func(s *Scenario, value string) error {
		points := map[float64]float64{}
		for _, word := range strings.Fields(value) {
			count, rate, ok := strings.Cut(word, ":")
			if !ok {
				count, rate = "1", word
			}
			n, err := number(count)
			if err != nil {
				return err
			}
			if points[n], err = number(rate); err != nil {
				return err
			}
		}
		if len(points) == 0 {
			return fmt.Errorf("%q is not a table: write the number of threads or workers, a colon and MB/s, as in 1:330 8:2870", value)
		}
		t, err := simulate.NewTable(points)
		if err == nil {
			*field(s) = t
		}
		return err
	}
}

// number reads a number that is not negative. Commas and underscores may part its digits.
func number(text string) (float64, error) {
	n, err := strconv.ParseFloat(strings.NewReplacer(",", "", "_", "").Replace(text), 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > 1e18 {
		return 0, fmt.Errorf("%q is not a number between 0 and 1e18", text)
	}
	return n, nil
}

// units of sizes, in MB (10^6 bytes).
var units = []struct {
	suffix string
	mb     float64
}{
	{"TB", 1e6}, {"GB", 1e3}, {"MB", 1}, {"KB", 1e-3}, {"kB", 1e-3},
	{"TiB", 1 << 40 / 1e6}, {"GiB", 1 << 30 / 1e6}, {"MiB", 1 << 20 / 1e6}, {"KiB", 1 << 10 / 1e6}, {"B", 1e-6},
}

// size reads a size with a unit, and returns MB.
func size(text string) (mb float64, err error) {
	for _, u := range units {
		if digits, ok := strings.CutSuffix(text, u.suffix); ok {
			n, err := number(strings.TrimSpace(digits))
			if err != nil {
				return 0, err
			}
			return n * u.mb, nil
		}
	}
	if n, err := number(text); err == nil && n == 0 {
		return 0, nil
	}
	return 0, fmt.Errorf("%q is not a size: write a number and B, KB, MB, GB or TB", text)
}
