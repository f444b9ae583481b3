package shuffle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

// vectorFile is a file of testdata/vectors: orders recorded from the frameworks themselves.
type vectorFile struct {
	Schema string       `json:"schema"`
	Recipe string       `json:"recipe"`
	Cases  []vectorCase `json:"cases"`
}

type vectorCase struct {
	Recipe  string                     `json:"recipe"`
	Version string                     `json:"version"`
	Params  map[string]json.RawMessage `json:"params"`
	Epochs  []vectorEpoch              `json:"epochs"`

	// Of torch.random_int64 only.
	Values      []string `json:"values"`
	FullRange   []string `json:"full_range_values"`
	InitialSeed string   `json:"initial_seed"`
}

type vectorEpoch struct {
	Epoch     int      `json:"epoch"`
	Count     int      `json:"count"`
	SHA256    string   `json:"sha256"`
	Order     []uint32 `json:"order"`
	First     []uint32 `json:"first"`
	Last      []uint32 `json:"last"`
	BaseSeed  string   `json:"base_seed"`
	Batches   *int     `json:"batches"`
	LastBatch *int     `json:"last_batch"`
}

// recorded names files with more edge cases. python/tests/live/record.py recorded them from the frameworks themselves.
const recorded = "testdata/recorded*.json"

// readVectors reads every file of testdata/vectors, or of the folder that SHUFFLE_VECTORS names.
func readVectors(t testing.TB) []vectorFile {
	t.Helper()
	dir := os.Getenv("SHUFFLE_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "testdata", "vectors")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no vectors in %s: %v", dir, err)
	}
	more, err := filepath.Glob(recorded)
	if err != nil || len(more) == 0 {
		t.Fatalf("no recorded cases: %v", err)
	}
	names = append(names, more...)
	var files []vectorFile
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var f vectorFile
		if err := json.Unmarshal(data, &f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if f.Schema != "shuffle-vectors/1" || len(f.Cases) == 0 {
			t.Fatalf("%s: schema %q with %d cases", name, f.Schema, len(f.Cases))
		}
		files = append(files, f)
	}
	return files
}

// spec turns a vector's parameters into a Spec and a rank.
func (c vectorCase) spec(t testing.TB) (Spec, int) {
	t.Helper()
	spec := Spec{Recipe: c.Recipe, Params: map[string]string{}}
	rank := 0
	number := func(raw json.RawMessage) int {
		n, err := strconv.Atoi(string(raw))
		if err != nil {
			t.Fatalf("%s: %v", c.Recipe, err)
		}
		return n
	}
	for name, raw := range c.Params {
		text := string(raw)
		if text == "null" {
			continue
		}
		var bare string
		if json.Unmarshal(raw, &bare) == nil {
			text = bare
		}
		switch name {
		case "n":
			spec.Samples = number(raw)
		case "seed":
			spec.Seed = text
		case "batch_size":
			spec.BatchSize = number(raw)
		case "world":
			spec.World = number(raw)
		case "drop_last":
			spec.DropLast = text == "true"
		case "rank":
			rank = number(raw)
		case "weights_formula":
			spec.Params["weights"] = formulaWeights(t, number(c.Params["n"]), text)
		default:
			spec.Params[name] = text
		}
	}
	return spec, rank
}

// formulaWeights computes weights by a vector's formula, writes them to a file and returns its name.
func formulaWeights(t testing.TB, n int, formula string) string {
	t.Helper()
	if !strings.HasPrefix(formula, "w[i] = 1 + ((i*2654435761) mod 2^32) / 2^32") {
		t.Fatalf("unknown weights formula %q", formula)
	}
	data := make([]byte, 0, 8*n)
	for i := range n {
		w := 1 + float64(uint32(uint64(i)*2654435761))/(1<<32)
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(w))
	}
	name := filepath.Join(t.TempDir(), "weights.f64")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestVectors(t *testing.T) {
	testenv.WithoutRace(t)
	files := 0
	for _, f := range readVectors(t) {
		files++
		for i, c := range f.Cases {
			t.Run(fmt.Sprintf("%s/%d", c.Recipe, i), func(t *testing.T) {
				if c.Recipe == "torch.random_int64" {
					checkNumbers(t, c)
					return
				}
				if len(c.Epochs) == 0 {
					t.Fatal("a case without epochs")
				}
				spec, rank := c.spec(t)
				r, err := New(spec)
				if err != nil {
					t.Fatal(err)
				}
				// Forward in the framework's order, then backward, on the same Replay.
				for _, e := range slices.Concat(c.Epochs, reversed(c.Epochs)) {
					checkEpoch(t, r, rank, e)
				}
			})
		}
	}
	if files < 24 && os.Getenv("SHUFFLE_VECTORS") == "" {
		t.Errorf("vectors in %d files, want 20 and 4 recorded ones", files)
	}
}

func reversed(e []vectorEpoch) []vectorEpoch {
	e = slices.Clone(e)
	slices.Reverse(e)
	return e
}

// checkEpoch compares a rank's order, and the same order joined from its batches, with a vector.
func checkEpoch(t *testing.T, r *Replay, rank int, want vectorEpoch) {
	t.Helper()
	got, err := r.Rank(want.Epoch, rank, nil)
	if err != nil {
		t.Fatalf("epoch %d: %v", want.Epoch, err)
	}
	compare(t, fmt.Sprintf("epoch %d", want.Epoch), got, want)

	global, err := r.Global(want.Epoch, nil)
	if err != nil {
		t.Fatal(err)
	}
	split, err := r.Split(want.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	batches, last := split.Batches(rank), 0
	var dealt []uint32
	var positions []uint64
	for b := range batches {
		positions = split.Positions(rank, b, positions)
		for _, p := range positions {
			dealt = append(dealt, global[p])
		}
		last = len(positions)
	}
	compare(t, fmt.Sprintf("epoch %d by batches", want.Epoch), dealt, want)
	if want.Batches != nil && batches != *want.Batches {
		t.Errorf("epoch %d: %d batches, want %d", want.Epoch, batches, *want.Batches)
	}
	if want.LastBatch != nil && last != *want.LastBatch {
		t.Errorf("epoch %d: last batch has %d samples, want %d", want.Epoch, last, *want.LastBatch)
	}
	if want.BaseSeed != "" {
		checkBaseSeed(t, r, want)
	}
}

func compare(t *testing.T, what string, got []uint32, want vectorEpoch) {
	t.Helper()
	if len(got) != want.Count {
		t.Fatalf("%s: %d samples, want %d", what, len(got), want.Count)
	}
	if want.Order != nil && !slices.Equal(got, want.Order) {
		t.Fatalf("%s:\n got %v\nwant %v", what, got, want.Order)
	}
	if want.Order == nil && want.Count >= 8 && (!slices.Equal(got[:8], want.First) || !slices.Equal(got[len(got)-8:], want.Last)) {
		t.Fatalf("%s:\n got %v … %v\nwant %v … %v", what, got[:8], got[len(got)-8:], want.First, want.Last)
	}
	if sum := orderSum(got); sum != want.SHA256 {
		t.Fatalf("%s: sha256 %s, want %s", what, sum, want.SHA256)
	}
}

// orderSum is the hex SHA-256 of the indices as little-endian uint32.
func orderSum(order []uint32) string {
	data := make([]byte, 0, 4*len(order))
	for _, x := range order {
		data = binary.LittleEndian.AppendUint32(data, x)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// checkBaseSeed compares the seed that the loader gives its workers.
func checkBaseSeed(t *testing.T, r *Replay, want vectorEpoch) {
	t.Helper()
	l := r.plan.epochs.(*live).first.clone().(*dataLoader)
	var seed uint64
	for range want.Epoch + 1 {
		at := l.clone().(*dataLoader)
		if s, drawn := at.begin(); drawn {
			seed = s
		}
		l.skip()
	}
	if got := strconv.FormatUint(seed, 10); got != want.BaseSeed {
		t.Errorf("epoch %d: base seed %s, want %s", want.Epoch, got, want.BaseSeed)
	}
}

func checkNumbers(t *testing.T, c vectorCase) {
	t.Helper()
	spec, _ := c.spec(t)
	for _, full := range []bool{false, true} {
		want := c.Values
		if full {
			want = c.FullRange
		}
		spec.Samples = len(want)
		spec.Params["full_range"] = strconv.FormatBool(full)
		got, err := RandomInt64(spec)
		if err != nil || len(want) == 0 {
			t.Fatalf("%d numbers wanted: %v", len(want), err)
		}
		for i, x := range got {
			if text := strconv.FormatInt(x, 10); text != want[i] {
				t.Errorf("full range %v, number %d: %s, want %s", full, i, text, want[i])
			}
		}
	}
}
