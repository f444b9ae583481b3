package shuffle

import (
	"strconv"
	"testing"
)

// imagenet22k is the number of samples in the largest public image dataset, which the memory figures in the documents are for.
const imagenet22k = 14_197_122

// BenchmarkGlobal makes one epoch's global order of 14.2 million samples, in an existing slice.
func BenchmarkGlobal(b *testing.B) {
	for _, spec := range []Spec{
		{Recipe: "torch.randperm", Seed: "42"},
		{Recipe: "torch.distributed_sampler", Seed: "42"},
		{Recipe: "torch.randperm_inside_out", Seed: "42"},
		{Recipe: "numpy.default_rng", Seed: "42"},
		{Recipe: "numpy.random_state", Seed: "42"},
		{Recipe: "python.shuffle", Seed: "42"},
		{Recipe: "grain.index_shuffle", Seed: "42"},
		{Recipe: "jax.permutation", Seed: "42"},
	} {
		b.Run(spec.Recipe, func(b *testing.B) {
			spec.Samples = imagenet22k
			r, err := New(spec)
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]uint32, imagenet22k)
			b.ReportAllocs()
			b.SetBytes(4 * imagenet22k)
			for epoch := 0; b.Loop(); epoch++ {
				if dst, err = r.Global(epoch, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRank makes one rank's order of another epoch each time. Memory holds one global order and the rank's order.
func BenchmarkRank(b *testing.B) {
	for _, world := range []int{1, 8, 64} {
		b.Run("world="+strconv.Itoa(world), func(b *testing.B) {
			r, err := New(Spec{Recipe: "torch.distributed_sampler", Samples: imagenet22k, World: world})
			if err != nil {
				b.Fatal(err)
			}
			dst, err := r.Rank(0, world-1, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for epoch := 1; b.Loop(); epoch++ {
				if dst, err = r.Rank(epoch, world-1, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJump advances by one epoch without computing its order. A resumed job waits for this time for each epoch.
func BenchmarkJump(b *testing.B) {
	for _, recipe := range []string{"torch.dataloader", "numpy.default_rng", "python.shuffle"} {
		b.Run(recipe, func(b *testing.B) {
			spec := Spec{Recipe: recipe, Samples: imagenet22k, Seed: "42"}
			if recipe == "torch.dataloader" {
				spec.Params = map[string]string{"generator": "explicit"}
			}
			r, err := New(spec)
			if err != nil {
				b.Fatal(err)
			}
			s := r.plan.epochs.(*live).first.clone()
			b.ReportAllocs()
			for b.Loop() {
				s.skip()
			}
		})
	}
}
