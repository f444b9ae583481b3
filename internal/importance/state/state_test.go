package state

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/internal/importance/substitute"
	"lcache/sample"
)

const samples = 200

func dataset() Dataset {
	d := Dataset{Fingerprint: "f", Labels: make([]int32, samples), Sizes: make([]uint32, samples)}
	for i := range d.Sizes {
		d.Sizes[i] = 100
	}
	return d
}

func config(t testing.TB, text string) Config {
	t.Helper()
	c, err := Parse([]byte(text), Defaults{Seed: "7", BatchSize: 20, WorldSize: 1, Lag: "0"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// opened restores or begins a state. The returned buffer gets its warnings.
func opened(t testing.TB, path string, c Config) (*State, *bytes.Buffer) {
	t.Helper()
	var said bytes.Buffer
	s, err := Open(c, path, dataset(), false, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Serve = nextServes
	return s, &said
}

// observe reports the losses of an epoch, which depend only on sample and epoch.
func observe(s *State, epoch int) {
	for batch, indices := range slices.Collect(slices.Chunk(s.Order(epoch).Indices, 20)) {
		o := score.Observation{Kind: score.Losses, Epoch: uint32(epoch), Batch: uint32(batch), Index: indices}
		for _, i := range indices {
			o.Loss = append(o.Loss, float32((int(i)*37+epoch*11)%101))
		}
		s.Observe(o)
	}
}

func advance(t testing.TB, s *State, to int) {
	t.Helper()
	if err := errors.Join(s.Advance(to, score.Progress{}), s.Save()); err != nil {
		t.Fatal(err)
	}
}

var methods = map[string]string{
	"impact, lag 0":     `{"method":"impact","params":{"s_share":0}}`,
	"impact, lag 1":     `{"method":"impact","lag":1,"params":{"s_share":0}}`,
	"impact, low":       `{"method":"impact","substitute":"low","params":{"s_share":0}}`,
	"impact, low ahead": `{"method":"impact","substitute":"low","lag":1,"params":{"s_share":0}}`,
	"impact, split":     `{"method":"impact","lag":"split","cache":4000,"params":{"warmup":2}}`,
	"impact, warming":   `{"method":"impact","cache":4000,"params":{"max_warmup":9,"overlap":1}}`,
	"shade":             `{"method":"shade","draw":"multinomial"}`,
	"shade, repeated":   `{"method":"shade","cache":4000,"params":{"rep":3}}`,
	"shade, lag 1":      `{"method":"shade","lag":"1"}`,
	"shade, split":      `{"method":"shade","lag":"split","cache":4000}`,
	"another draw seed": `{"method":"shade","seed":"18446744073709551615"}`,
}

// TestRestoredDrawsTheSame: a state that is restored at any boundary has the order of the epoch that begins, and
// draws the same orders after it.
func TestRestoredDrawsTheSame(t *testing.T) {
	for name, text := range methods {
		t.Run(name, func(t *testing.T) {
			const epochs = 5
			dir := t.TempDir()
			path := filepath.Join(dir, "a")
			one, _ := opened(t, path, config(t, text))
			advance(t, one, 0)
			var files [][]byte
			var orders, requested [][]uint32
			for epoch := range epochs {
				orders = append(orders, slices.Clone(one.Order(epoch).Indices))
				requested = append(requested, slices.Clone(one.Order(epoch).Requested))
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, b)
				observe(one, epoch)
				advance(t, one, epoch+1)
			}
			if plain := slices.Sorted(slices.Values(orders[0])); len(slices.Compact(plain)) != samples {
				t.Errorf("epoch 0 has %d distinct samples, want each once", len(plain))
			}
			if slices.Equal(slices.Sorted(slices.Values(orders[epochs-1])), slices.Sorted(slices.Values(orders[0]))) && !strings.Contains(name, "warming") {
				t.Error("the last epoch is a plain permutation, too")
			}
			for from, b := range files {
				path := filepath.Join(dir, fmt.Sprint(from))
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				again, said := opened(t, path, config(t, text))
				again.Serve = func(epoch int, requested []sample.Index) (substitute.Plan, error) {
					if epoch <= from {
						t.Errorf("restored before epoch %d: the served samples of epoch %d are decided again", from, epoch)
					}
					return nextServes(epoch, requested)
				}
				advance(t, again, from)
				for epoch := from; epoch < epochs; epoch++ {
					if !slices.Equal(again.Order(epoch).Indices, orders[epoch]) || !slices.Equal(again.Order(epoch).Requested, requested[epoch]) {
						t.Fatalf("restored before epoch %d, epoch %d has another order; %s", from, epoch, said)
					}
					observe(again, epoch)
					advance(t, again, epoch+1)
				}
			}
		})
	}
}

// TestLagOne: epochs 0 and 1 are plain, and the order of epoch e + 2 is known when e + 1 begins.
func TestLagOne(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "a"), config(t, methods["shade, lag 1"]))
	advance(t, s, 0)
	if !s.Order(0).Plain || !s.Order(1).Plain || s.Order(2) != nil {
		t.Fatalf("at first %v", s.Orders())
	}
	observe(s, 0)
	advance(t, s, 1)
	if o := s.Order(2); o == nil || o.Plain {
		t.Errorf("order 2 is %v when epoch 1 begins", o)
	}
}

// TestSilentTrainer: without observations epochs are plain, there is one warning, and the state is idle until reports
// return.
func TestSilentTrainer(t *testing.T) {
	s, said := opened(t, filepath.Join(t.TempDir(), "a"), config(t, methods["shade"]))
	advance(t, s, 0)
	observe(s, 0)
	for epoch := range 5 {
		advance(t, s, epoch+1)
		idle := epoch >= 2
		if got := s.Activity().State == score.Idle; got != idle || s.Order(epoch+1).Plain != idle {
			t.Errorf("epoch %d: idle %v, plain %v, want %v", epoch+1, got, s.Order(epoch+1).Plain, idle)
		}
	}
	if n := strings.Count(said.String(), "no loss was observed"); n != 1 {
		t.Errorf("%d warnings: %s", n, said)
	}
	observe(s, 5)
	advance(t, s, 6)
	if s.Order(6).Plain {
		t.Error("ranks report losses again, but the order is plain")
	}
}

// TestGoesBack: a kept epoch keeps its order. Going back to one that is not kept forgets everything.
func TestGoesBack(t *testing.T) {
	s, said := opened(t, filepath.Join(t.TempDir(), "a"), config(t, methods["shade"]))
	advance(t, s, 0)
	first := slices.Clone(s.Order(0).Indices)
	for epoch := range 4 {
		observe(s, epoch)
		advance(t, s, epoch+1)
	}
	kept := slices.Clone(s.Order(3).Indices)
	advance(t, s, 3)
	if s.Epoch() != 4 || !slices.Equal(s.Order(3).Indices, kept) {
		t.Errorf("going back to epoch 3 gave epoch %d, or another order", s.Epoch())
	}
	advance(t, s, 0)
	if s.Epoch() != 0 || !slices.Equal(s.Order(0).Indices, first) || s.Activity().LastObserved != -1 || s.Order(4) != nil {
		t.Errorf("going back to epoch 0 gave epoch %d, %+v", s.Epoch(), s.Activity())
	}
	if !strings.Contains(said.String(), "losses reset") {
		t.Errorf("no warning: %s", said)
	}
	advance(t, s, 9)
	if s.Epoch() != 9 || s.Order(9) == nil {
		t.Error("an epoch far ahead has no order")
	}
}

// TestRepetitions: a repeated observation counts once, unless the rank has a new process.
func TestRepetitions(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "a"), config(t, methods["shade"]))
	advance(t, s, 0)
	o := score.Observation{Kind: score.Losses, Index: []sample.Index{1, 2}, Loss: []float32{1, 2}}
	s.Observe(o)
	s.Observe(o)
	if s.Counts.Observations != 2 || s.Again != 1 {
		t.Errorf("%d observed, %d again", s.Counts.Observations, s.Again)
	}
	s.Restarted(0)
	s.Observe(o)
	o.Epoch = 7
	s.Observe(o)
	if s.Counts.Observations != 4 || s.Counts.Refused.Stale != 2 {
		t.Errorf("%d observed, %+v", s.Counts.Observations, s.Counts.Refused)
	}
}

// TestRepeatedSamples: the samples of greatest value are repeated, or the samples in memory if the policy knows
// them.
func TestRepeatedSamples(t *testing.T) {
	for _, held := range [][]sample.Index{nil, {3, 150}} {
		s, _ := opened(t, filepath.Join(t.TempDir(), "a"), config(t, methods["shade, repeated"]))
		s.Held = func() (*sample.Set, error) {
			if held == nil {
				return nil, nil
			}
			set, err := sample.NewSet(samples)
			for _, i := range held {
				set.Add(i)
			}
			return set, err
		}
		advance(t, s, 0)
		observe(s, 0)
		accuracy := 0.5
		if err := s.Advance(1, score.Progress{Accuracy: &accuracy}); err != nil {
			t.Fatal(err)
		}
		plain, err := s.Targets()
		if err != nil {
			t.Fatal(err)
		}
		defer offheap.Free(plain)
		hot := held
		if held == nil {
			high, err := s.High()
			if err != nil {
				t.Fatal(err)
			}
			hot = slices.Collect(high.All)
			high.Close()
		}
		for i, uses := range s.Uses(1) {
			if repeated := float64(uses) > 2.9*plain[i]; repeated != slices.Contains(hot, sample.Index(i)) {
				t.Errorf("%d are held: %v uses are expected of sample %d, %v without repetition", len(held), uses, i, plain[i])
			}
		}
	}
}

// TestForeignOrDamagedFile: a state of another dataset or another job is not used, and neither is a damaged one, whatever
// bit is wrong.
func TestForeignOrDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	c := config(t, methods["impact, split"])
	s, _ := opened(t, path, c)
	advance(t, s, 0)
	for epoch := range 4 {
		observe(s, epoch)
		advance(t, s, epoch+1)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{"empty": nil, "short": good[:20], "without its end": good[:len(good)-9], "longer": append(slices.Clone(good), 0)}
	for bit := 0; bit < 8*len(good); bit += 8*len(good)/60 + 1 {
		b := slices.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		bad[fmt.Sprint("bit ", bit)] = b
	}
	for name, b := range bad {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if again, said := opened(t, path, c); again.Epoch() != 0 || !strings.Contains(said.String(), "not used") {
			t.Errorf("%s: epoch %d: %s", name, again.Epoch(), said)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, epoch := range map[string]int{
		`{"method":"shade"}`: 0,
		`{"method":"impact","lag":"split","cache":4000,"params":{"warmup":2,"beta":0.5}}`:     0,
		`{"method":"impact","lag":"split","cache":4000,"seed":1,"params":{"warmup":2}}`:       0,
		`{"method":"impact","lag":"split","cache":9000,"world_size":3,"params":{"warmup":2}}`: 4,
	} {
		if again, _ := opened(t, path, config(t, text)); again.Epoch() != epoch {
			t.Errorf("%s: epoch %d, want %d", text, again.Epoch(), epoch)
		}
	}
	d := dataset()
	d.Fingerprint = "g"
	again, err := Open(c, path, d, false, slog.New(slog.DiscardHandler))
	if err != nil || again.Epoch() != 0 {
		t.Fatalf("%v, epoch %d of another dataset", err, again.Epoch())
	}
	again.Close()
}

// TestInvalidPairOfOrders: a file with two orders, one of them impossible, is not used.
func TestInvalidPairOfOrders(t *testing.T) {
	c := config(t, methods["impact, low"])
	for name, spoil := range map[string]func(o *Order){
		"a substitute that is none": func(o *Order) { o.Kinds.Set(1, policy.Substitute) },
		"a sample in place of another": func(o *Order) {
			o.Kinds.Set(slices.IndexFunc(o.Requested, func(i sample.Index) bool { return i != 2 && i != samples-1 }), policy.Miss)
		},
		"an unknown way":              func(o *Order) { o.Kinds.Set(1, 3) },
		"an index beyond the dataset": func(o *Order) { o.Requested[1], o.Indices[1] = samples, samples },
	} {
		path := filepath.Join(t.TempDir(), "a")
		s, _ := opened(t, path, c)
		advance(t, s, 0)
		observe(s, 0)
		advance(t, s, 1)
		o := s.Order(1)
		spoil(o)
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
		if again, said := opened(t, path, c); again.Epoch() != 0 || !strings.Contains(said.String(), "not used") {
			t.Errorf("%s: epoch %d: %s", name, again.Epoch(), said)
		}
	}
}

// TestWithoutAPlanTheDrawnOrderIsServed: if the served order can't be planned, the drawn order is served.
func TestWithoutAPlanTheDrawnOrderIsServed(t *testing.T) {
	s, said := opened(t, filepath.Join(t.TempDir(), "a"), config(t, methods["impact, low"]))
	s.Serve = func(int, []sample.Index) (substitute.Plan, error) { return substitute.Plan{}, errors.New("no memory") }
	advance(t, s, 0)
	observe(s, 0)
	advance(t, s, 1)
	if o := s.Order(1); o == nil || o.Plain || o.Requested != nil || !strings.Contains(said.String(), "no memory") {
		t.Errorf("order %v: %s", o, said)
	}
}

// TestWeightsOfSubstitutes: any L-sample may be served for any other, so all L-samples have the same weight.
// H-samples are served as drawn, more often, and weigh less.
func TestWeightsOfSubstitutes(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "a"), config(t, `{"method":"impact","substitute":"low","cache":4000,"params":{"s_share":0}}`))
	advance(t, s, 0)
	observe(s, 0)
	advance(t, s, 1)
	high, err := s.High()
	if err != nil {
		t.Fatal(err)
	}
	defer high.Close()
	all := make([]sample.Index, samples)
	for i := range all {
		all[i] = sample.Index(i)
	}
	low := float32(0)
	for i, w := range s.Weights(1, all) {
		switch {
		case high.Has(sample.Index(i)):
			continue
		case low == 0:
			low = w
		case w != low:
			t.Errorf("L-sample %d weighs %v, others %v", i, w, low)
		}
	}
	for i, w := range s.Weights(1, all) {
		if high.Has(sample.Index(i)) && w >= low {
			t.Errorf("H-sample %d weighs %v, L-samples %v", i, w, low)
		}
	}
}

// FuzzDecode: whatever a file contains, reading it ends with a state or an error, and takes no more memory than the
// size of the file allows.
func FuzzDecode(f *testing.F) {
	both := map[bool]Config{false: config(f, methods["impact, split"]), true: config(f, methods["impact, low"])}
	path := filepath.Join(f.TempDir(), "a")
	for two, c := range both {
		s, _ := opened(f, path, c)
		advance(f, s, 0)
		for epoch := range 3 {
			b, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b[:len(b)-8], two)
			observe(s, epoch)
			advance(f, s, epoch+1)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, two bool) {
		s, err := New(both[two], path, dataset(), false, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if s.decode(newBuffered(b), int64(len(b))) != nil {
			return
		}
		for epoch, o := range s.Orders() {
			for _, i := range slices.Concat(o.Indices, o.Requested) {
				if i >= samples {
					t.Fatalf("epoch %d has sample %d", epoch, i)
				}
			}
			if o.Requested != nil && (!two || len(o.Requested) != len(o.Indices)) {
				t.Fatalf("epoch %d serves %d samples of %d", epoch, len(o.Indices), len(o.Requested))
			}
		}
		if err := s.Advance(s.Epoch(), score.Progress{}); err != nil {
			t.Log(err)
		}
	})
}

// TestWeights: rare samples weigh more, with a mean of 1. All samples of a plain epoch weigh the same. Indices beyond
// the dataset weigh nothing.
func TestWeights(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "a"), config(t, methods["impact, lag 0"]))
	advance(t, s, 0)
	if got := s.Weights(0, []sample.Index{0, 1}); got[0] != 1 || got[1] != 1 {
		t.Errorf("plain: %v", got)
	}
	observe(s, 0)
	advance(t, s, 1)
	all := make([]sample.Index, samples)
	for i := range all {
		all[i] = sample.Index(i)
	}
	weights, least, most := s.Weights(1, all), 0, 0
	mean := 0.0
	for i, w := range weights {
		mean += float64(w) / samples
		if (i*37)%101 < (least*37)%101 {
			least = i
		}
		if (i*37)%101 > (most*37)%101 {
			most = i
		}
	}
	if mean < 0.999 || mean > 1.001 || weights[least] <= 5*weights[most] {
		t.Errorf("mean %v, of the least loss %v, of the greatest %v", mean, weights[least], weights[most])
	}
	if got := s.Weights(1, []sample.Index{samples}); got[0] != 0 {
		t.Errorf("beyond the dataset: %v", got)
	}
}
