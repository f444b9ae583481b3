package drawn

import (
	"bytes"
	"encoding/hex"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lcache/importance"
)

var update = flag.Bool("update", false, "write the golden file")

// few is a state of three samples in its second epoch, with all parts that a file can have.
func few(t *testing.T, path string) *State {
	t.Helper()
	c, err := Parse([]byte(`{"method":"impact","lag":"split","cache":200,"seed":7,"name":"a","batch_size":2,"world_size":1,"params":{"warmup":1}}`), Defaults{Lag: "0"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(c, path, Dataset{Fingerprint: "f", Labels: make([]int32, 3), Sizes: []uint32{100, 100, 100}}, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	advance(t, s, 0)
	s.Observe(importance.Observation{Kind: importance.Losses, Index: []uint32{0, 1, 2}, Loss: []float32{0.5, 2, 1}})
	accuracy := 0.25
	if err := s.Advance(1, importance.Progress{Accuracy: &accuracy}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGoldenFile: the file of a state has these bytes, and these bytes are that state: files of earlier programs of this version can be read.
func TestGoldenFile(t *testing.T) {
	path, golden := filepath.Join(t.TempDir(), "importance-a"), "testdata/state.hex"
	s := few(t, path)
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
		t.Errorf("%s is not what is written; got\n%s", golden, got)
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
	if again.Epoch() != 1 || again.low == nil || !slices.Equal(again.Order(1).Indices, s.Order(1).Indices) || !slices.Equal(again.low.order, s.low.order) {
		t.Errorf("epoch %d, orders %v, L part %v", again.Epoch(), again.Orders(), again.low)
	}
}
