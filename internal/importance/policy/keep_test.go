package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/policy"
	"lcache/internal/testenv"
	"lcache/sample"

	"github.com/cockroachdb/datadriven"
)

// TestKeep reads testdata/keep.txt. Each paragraph has samples with their facts, and the room of the log. The answer
// is the list of kept samples.
//
//	keep room=BYTES [most=SAMPLES]
//	NAME expected=T [uses=N] [size=BYTES] [here] [comes] [high]
//	----
//	the names of the kept samples
func TestKeep(t *testing.T) {
	datadriven.RunTest(t, "testdata/keep.txt", func(t *testing.T, d *datadriven.TestData) string {
		k := policy.Keeping{Most: 1 << 30}
		for _, arg := range d.CmdArgs {
			n, err := strconv.Atoi(arg.Vals[0])
			switch {
			case err != nil:
				d.Fatalf(t, "%s: %v", arg.Key, err)
			case arg.Key == "room":
				k.Room = int64(n)
			case arg.Key == "most":
				k.Most = n
			}
		}
		var names []string
		var expected []float32
		var sizes []int64
		flags := map[string]map[sample.Index]bool{"here": {}, "comes": {}, "high": {}}
		for i, line := range strings.Split(d.Input, "\n") {
			name, rest, _ := strings.Cut(line, " ")
			names, expected, sizes, k.Uses = append(names, name), append(expected, 0), append(sizes, 1), append(k.Uses, 0)
			for _, field := range strings.Fields(rest) {
				key, value, has := strings.Cut(field, "=")
				if !has {
					flags[key][sample.Index(i)] = true
					continue
				}
				f, err := strconv.ParseFloat(value, 32)
				if err != nil {
					d.Fatalf(t, "%s: %v", field, err)
				}
				switch key {
				case "expected":
					expected[i] = float32(f)
				case "uses":
					k.Uses[i] = uint8(f)
				case "size":
					sizes[i] = int64(f)
				}
			}
		}
		k.InLog = func(i sample.Index) bool { return flags["here"][i] }
		k.Arrives = func(i sample.Index) bool { return flags["comes"][i] }
		k.High = func(i sample.Index) bool { return flags["high"][i] }
		k.Size = func(i sample.Index) int64 { return sizes[i] }
		k.MostUsed = testenv.OK[[]sample.Index](t)(policy.MostUsed(expected))
		defer offheap.Free(k.MostUsed)
		kept := testenv.OK[*sample.Set](t)(k.Choose())
		defer kept.Close()
		var out []string
		for i := range kept.All {
			out = append(out, names[i])
		}
		return strings.Join(out, " ") + "\n"
	})
}

// TestKeepFits: the kept samples never take more than the room. None of them is neither in the log nor delivered. No
// delivered sample is left out while a sample that is not delivered is kept.
func TestKeepFits(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 1 + r.IntN(300)
		expected, here, comes, high, sizes := make([]float32, n), make([]bool, n), make([]bool, n), make([]bool, n), make([]int64, n)
		k := policy.Keeping{Uses: make([]uint8, n), Room: int64(r.IntN(5 * n)), Most: r.IntN(n + 1),
			InLog: func(i sample.Index) bool { return here[i] }, Arrives: func(i sample.Index) bool { return comes[i] }, High: func(i sample.Index) bool { return high[i] },
			Size: func(i sample.Index) int64 { return sizes[i] }}
		same := r.IntN(2) == 0
		for i := range n {
			expected[i], here[i], comes[i], high[i], sizes[i] = r.Float32(), r.IntN(2) == 0, r.IntN(3) == 0, r.IntN(6) == 0, int64(r.IntN(10))
			k.Uses[i] = uint8(max(0, r.IntN(5)-2))
			if same {
				sizes[i] = 3
			}
		}
		k.MostUsed = testenv.OK[[]sample.Index](t)(policy.MostUsed(expected))
		kept := testenv.OK[*sample.Set](t)(k.Choose())
		bytes, unused, left := int64(0), "", ""
		for i := range n {
			index := sample.Index(i)
			wanted := k.Uses[i] > 0 && !high[i] && (here[i] || comes[i])
			switch {
			case kept.Has(index) && !here[i] && !comes[i] && k.Uses[i] == 0:
				t.Errorf("seed %d: %d is kept, and neither there nor delivered", seed, i)
			case kept.Has(index):
				bytes += sizes[i]
				if !wanted {
					unused = fmt.Sprint(i)
				}
			case wanted && sizes[i] > 0:
				left = fmt.Sprint(i)
			}
		}
		if bytes > k.Room || kept.Len() > k.Most {
			t.Errorf("seed %d: %d bytes of %d samples, room for %d of %d", seed, bytes, kept.Len(), k.Room, k.Most)
		}
		if same && unused != "" && left != "" {
			t.Errorf("seed %d: %s is kept, which is not wanted, and %s is not, which is", seed, unused, left)
		}
		kept.Close()
		offheap.Free(k.MostUsed)
	}
}
