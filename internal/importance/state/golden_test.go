package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/internal/importance/substitute"
	"lcache/sample"
)

var update = flag.Bool("update", false, "write the golden file")

// few returns a state of three samples after some epochs, with all parts that a file can have.
func few(t *testing.T, path, asked string, epochs int) *State {
	t.Helper()
	c, err := Parse([]byte(asked), Defaults{Lag: "0"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(c, path, Dataset{Fingerprint: "f", Labels: make([]int32, 3), Sizes: []uint32{100, 100, 100}}, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Serve = nextServes
	advance(t, s, 0)
	accuracy := 0.25
	for epoch := range epochs {
		s.Observe(score.Observation{Kind: score.Losses, Epoch: uint32(epoch), Index: []uint32{0, 1, 2}, Loss: []float32{0.5, 2, 1}})
		if err := errors.Join(s.Advance(epoch+1, score.Progress{Accuracy: &accuracy}), s.Save()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// nextServes serves sample i + 1 for sample i in every other position, unless i is the last sample.
func nextServes(_ int, requested []sample.Index) (p substitute.Plan, err error) {
	if p.Indices, err = offheap.MakeDense[uint32](len(requested)); err != nil {
		return p, err
	}
	if p.Kinds, err = substitute.MakeKinds(len(requested)); err != nil {
		return p, err
	}
	for k, i := range requested {
		p.Indices[k] = i
		switch {
		case k%2 == 1:
			p.Kinds.Set(k, policy.Hit)
		case i != 2 && i != samples-1:
			p.Indices[k] = i + 1
			p.Kinds.Set(k, policy.Substitute)
		}
	}
	return p, nil
}

// TestGoldenFile: the file of a state has exactly these bytes, and these bytes restore the state, so files of earlier
// programs with these versions can be read. A job without substitutes has version 1.
func TestGoldenFile(t *testing.T) {
	const split, low = `{"method":"impact","lag":"split","cache":200,"seed":7,"name":"a","batch_size":2,"world_size":1,"params":{"warmup":1}}`,
		`{"method":"impact","substitute":"low","cache":200,"seed":7,"name":"a","batch_size":2,"world_size":1,"params":{"warmup":1}}`
	t.Run("1", func(t *testing.T) { checkGolden(t, "testdata/state.hex", split, 2) })
	t.Run("2", func(t *testing.T) { checkGolden(t, "testdata/state2.hex", low, 1) })
}

func checkGolden(t *testing.T, golden, asked string, epochs int) {
	path := filepath.Join(t.TempDir(), "importance-a")
	s := few(t, path, asked, epochs)
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(hex.Dump(written)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.Dump(written); got != string(want) {
		t.Errorf("%s differs from the written file; got\n%s", golden, got)
	}
	var kept []byte
	for line := range bytes.Lines(want) {
		b, err := hex.DecodeString(string(bytes.ReplaceAll(line[10:58], []byte(" "), nil)))
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, b...)
	}
	if err := os.WriteFile(path, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.Config, path, s.data, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if (again.low == nil) != (s.low == nil) || s.low != nil && !slices.Equal(again.low.order, s.low.order) {
		t.Errorf("L part %v, want %v", again.low, s.low)
	}
	for epoch, o := range s.Orders() {
		if got := again.Order(epoch); got == nil || !slices.Equal(got.Indices, o.Indices) || !slices.Equal(got.Requested, o.Requested) || !slices.Equal(got.Kinds, o.Kinds) {
			t.Errorf("epoch %d: %v, want %v", epoch, got, o)
		}
	}
	if two := s.Order(epochs).Requested != nil; again.Epoch() != epochs || two != (s.Config.Substitute != "") {
		t.Errorf("epoch %d, and two orders: %v", again.Epoch(), two)
	}
}
