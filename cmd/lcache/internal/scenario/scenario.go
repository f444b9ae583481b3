// Package scenario has the jobs and clusters that lcache simulate knows by name, and reads others from files.
//
// A Scenario is a machine and a workload of package simulate under a name. Load takes a name or the path of a file; Read parses
// a file, and its errors name file, line and key. Set changes one key of a scenario, as a line of a file does.
//
// Run simulates several scenarios and policies one after the other: what lcache simulate does. Options say which, Vary makes a variant for each combination of changed keys, and a
// Report has the results. A policy that can't do a job is a result, not an error. The simulator itself is in package simulate. All may be called concurrently.
package scenario

import (
	"fmt"
	"math"
	"os"
	"slices"

	"lcache/cmd/lcache/internal/simulate"
	"lcache/internal/usage"
)

// Scenario is a job on a cluster.
type Scenario struct {
	Name     string            `json:"name"`  // a short word
	Title    string            `json:"title"` // for people
	Machine  simulate.Machine  `json:"machine"`
	Workload simulate.Workload `json:"workload"`
}

// Scale divides the number of samples, and the capacities of memory and SSD, so that a simulation takes less time. The
// staging buffer stays: it is compared with a mini-batch, and mini-batches stay.
func (s *Scenario) Scale(by float64) {
	s.Workload.Samples = math.Max(1, math.Round(s.Workload.Samples/by))
	for class := 1; class < simulate.Classes; class++ {
		s.Machine.Capacity[class] /= by
	}
}

// Load returns the built-in scenario of a name, or the scenarios of a file.
func Load(nameOrFile string) ([]Scenario, error) {
	for _, s := range Builtin() {
		if s.Name == nameOrFile {
			return []Scenario{s}, nil
		}
	}
	if _, err := os.Stat(nameOrFile); err == nil {
		return ReadFile(nameOrFile)
	}
	hint := ""
	if near := usage.Nearest(nameOrFile, Names()); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", near)
	}
	return nil, fmt.Errorf("%q is neither a built-in scenario nor a file%s", nameOrFile, hint)
}

// Names lists the built-in scenarios.
func Names() (names []string) {
	for _, s := range Builtin() {
		names = append(names, s.Name)
	}
	return names
}

// Builtin returns the six jobs of NoPFS's Fig. 8, two of them with a slow source, and three of lcache's documentation.
func Builtin() []Scenario {
	return slices.Concat(figure8(), examples())
}

// figure8 are the scenarios of NoPFS §6 on the machine of its Fig. 8, as the text states them. E is not in the text; the
// authors' scripts have 5.
func figure8() []Scenario {
	machine := func(workers int, slower float64) simulate.Machine {
		return simulate.Machine{
			Workers: workers, Compute: 64, Preprocess: 200, Network: 24_000,
			Threads: [simulate.Classes]float64{8, 4, 2}, Capacity: [simulate.Classes]float64{5_000, 120_000, 900_000},
			Read: [simulate.Classes]simulate.Table{{{Count: 8, Rate: 111_000}}, {{Count: 4, Rate: 85_000}}, {{Count: 2, Rate: 4_000}}},
			PFS:  simulate.Table{{Count: 1, Rate: 330 / slower}, {Count: 2, Rate: 730 / slower}, {Count: 4, Rate: 1_540 / slower}, {Count: 8, Rate: 2_870 / slower}},
		}
	}
	job := func(samples, mean, sigma, batch float64) simulate.Workload {
		return simulate.Workload{Samples: samples, MeanMB: mean, SigmaMB: sigma, Batch: batch, Epochs: 5}
	}
	return []Scenario{
		{"mnist", "MNIST: fits into one memory", machine(4, 1), job(50_000, 0.00076, 0, 32)},
		{"imagenet1k", "ImageNet-1k: fits into one node", machine(4, 1), job(1_281_167, 0.1077, 0.1, 32)},
		{"openimages", "OpenImages: fits into one node", machine(4, 1), job(1_743_042, 0.2937, 0.2, 32)},
		{"imagenet22k", "ImageNet-22k: fits into all nodes", machine(4, 1), job(14_197_122, 0.1077, 0.2, 32)},
		{"cosmoflow", "CosmoFlow: fits nowhere", machine(4, 1), job(262_144, 17, 0, 16)},
		{"cosmoflow512", "CosmoFlow 512³: fits nowhere", machine(8, 1), job(10_000, 1_000, 0, 1)},
		{"imagenet1k-tight", "ImageNet-1k, source 8× slower", machine(4, 8), job(1_281_167, 0.1077, 0.1, 32)},
		{"imagenet22k-tight", "ImageNet-22k, source 8× slower", machine(4, 8), job(14_197_122, 0.1077, 0.2, 32)},
	}
}

// examples are the examples of docs/planning.md: ImageNet-1k on eight NVMe drives, on a cloud volume, and on four small nodes.
func examples() []Scenario {
	job := simulate.Workload{Samples: 1_281_167, MeanMB: 0.107798, SigmaMB: 0.1, Batch: 256, Epochs: 5}
	flat := func(rate float64) simulate.Table { return simulate.Table{{Count: 1, Rate: rate}} }
	return []Scenario{
		{"nvme", "8 ranks on one node with 8 NVMe drives", simulate.Machine{
			Workers: 8, Compute: 269.5, Threads: [simulate.Classes]float64{1, 1, 1}, Capacity: [simulate.Classes]float64{500, 0, 4_000_000},
			Read: [simulate.Classes]simulate.Table{nil, nil, flat(3_200)}, PFS: flat(646.8),
		}, job},
		{"volume", "a cloud volume of 3,000 operations/s", simulate.Machine{
			Workers: 1, Compute: 1_078, Threads: [simulate.Classes]float64{1, 1, 1}, Capacity: [simulate.Classes]float64{500, 0, 150_000},
			Read: [simulate.Classes]simulate.Table{nil, nil, flat(323.4)}, PFS: flat(592.9),
		}, job},
		{"nodes", "4 nodes with 60 GB each, and S3", simulate.Machine{
			Workers: 4, Compute: 539, Network: 1_250, Threads: [simulate.Classes]float64{1, 1, 1}, Capacity: [simulate.Classes]float64{500, 0, 60_000},
			Read: [simulate.Classes]simulate.Table{nil, nil, flat(2_000)}, PFS: flat(592.9),
		}, job},
	}
}
