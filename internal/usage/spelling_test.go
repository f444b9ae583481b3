package usage

import "testing"

func TestNearest(t *testing.T) {
	flags := []string{"source", "cache", "recipe", "seed", "epochs", "batch-size", "world-size", "ranks", "io", "jobs", "socket", "socket-mode"}
	recipes := []string{"torch.dataloader", "torch.distributed_sampler", "torch.random_sampler", "torch.randperm", "torch.random_split"}
	for _, c := range []struct {
		word  string
		names []string
		want  string
	}{
		{"sorce", flags, "source"},
		{"suorce", flags, "source"},
		{"sources", flags, "source"},
		{"batch_size", flags, "batch-size"},
		{"batchsize", flags, "batch-size"},
		{"batch", flags, "batch-size"},
		{"BATCH-SIZE", flags, "batch-size"},
		{"soc", flags, ""}, // two names begin so
		{"oi", flags, ""},  // two letters are near to everything
		{"x", flags, ""},
		{"", flags, ""},
		{"-", flags, ""},
		{"colour", flags, ""},
		{"distributed_sampler", recipes, "torch.distributed_sampler"},
		{"DistributedSampler", recipes, "torch.distributed_sampler"},
		{"torch.distributedsampler", recipes, "torch.distributed_sampler"},
		{"torch.dataloder", recipes, "torch.dataloader"},
		{"torch.nosuch", recipes, ""},
		{"numpy.rng", recipes, ""},
		{"anything", nil, ""},
	} {
		if got := Nearest(c.word, c.names); got != c.want {
			t.Errorf("%q: got %q, want %q", c.word, got, c.want)
		}
	}
}

func TestSlip(t *testing.T) {
	names := []string{"MEMORY", "IO", "FACTS", "BATCH_SIZE"}
	for word, want := range map[string]string{
		"MEMROY": "MEMORY", "MEMOR": "MEMORY", "MEMORYS": "MEMORY", "BATCHSIZE": "BATCH_SIZE", "MEMO": "", "IOX": "", "FAULTS": "", "HOME": "", "": "",
	} {
		if got := Slip(word, names); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"abc", "bac", 1},
		{"abc", "xabc", 1}, {"kitten", "sitting", 3}, {"abcdef", "uvwxyz", 4}, // the limit
	} {
		if got := distance(c.a, c.b, 4); got != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a, 4); got != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
