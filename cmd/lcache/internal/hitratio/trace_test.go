package hitratio

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// npy is a file as numpy writes it.
func npy(version byte, dict string, numbers any) []byte {
	var b bytes.Buffer
	pad := strings.Repeat(" ", (64-(10+len(dict)+1)%64)%64)
	b.WriteString("\x93NUMPY")
	b.Write([]byte{version, 0})
	if length := len(dict) + len(pad) + 1; version == 1 {
		binary.Write(&b, binary.LittleEndian, uint16(length))
	} else {
		binary.Write(&b, binary.LittleEndian, uint32(length))
	}
	b.WriteString(dict + pad + "\n")
	binary.Write(&b, binary.LittleEndian, numbers)
	return b.Bytes()
}

func saved(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFiles: the same losses are read from each kind of file.
func TestFiles(t *testing.T) {
	narrow, wide := make([]float32, 6), make([]float64, 6)
	for i := range narrow {
		narrow[i], wide[i] = float32(i)/4, float64(i)/4
	}
	raw, err := binary.Append(nil, binary.LittleEndian, narrow)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"f.f32": raw,
		"f.npy": npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", narrow),
		"d.npy": npy(2, "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }", wide),
	} {
		tr := trace(t, saved(t, name, b), 2)
		next := tr.losses(0)
		for e := range 3 {
			if got, err := next(e); err != nil || !slices.Equal(got, narrow[2*e:2*e+2]) {
				t.Errorf("%s: epoch %d is %v, %v", name, e, got, err)
			}
		}
		if tr.Epochs != 3 || tr.Samples != 2 {
			t.Errorf("%s: %+v", name, tr)
		}
	}
}

// TestRun: all epochs of a file count. If a loss is not a number, the error has its position.
func TestRun(t *testing.T) {
	losses := make([]float32, 8*50)
	for i := range losses {
		losses[i] = float32(i % 50)
	}
	path := saved(t, "f.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 50), }", losses))
	var calls int
	r, err := Run(context.Background(), Options{Trace: trace(t, path, 0), Caches: []float64{0.5}, Progress: func(done, total int) { calls++ }})
	if err != nil {
		t.Fatal(err)
	}
	if got := at(t, r, "impact", 1, "paper", 0.5); got.Hits < 0.7 || calls == 0 || r.Seeds != 1 || len(r.Curves) != 4*5 {
		t.Errorf("%+v, %d calls, %d seeds, %d curves", got, calls, r.Seeds, len(r.Curves))
	}
	losses[3*50+7] = float32(math.Inf(1))
	path = saved(t, "f.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 50), }", losses))
	if _, err := Run(context.Background(), Options{Trace: trace(t, path, 0), Caches: []float64{0.5}}); err == nil || !strings.Contains(err.Error(), "sample 7 in epoch 3") {
		t.Errorf("an infinite loss: %v", err)
	}
}

// TestBadFiles: files that are not traces are refused.
func TestBadFiles(t *testing.T) {
	good := npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", make([]float32, 6))
	for name, c := range map[string]struct {
		file    string
		b       []byte
		samples int
		want    string
	}{
		"no header":     {"f.npy", []byte("xx"), 0, "no .npy"},
		"cut":           {"f.npy", good[:len(good)-3], 0, "bytes"},
		"longer":        {"f.npy", append(slices.Clone(good), 1), 0, "bytes"},
		"ints":          {"f.npy", npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }", make([]int32, 6)), 0, "float32"},
		"fortran":       {"f.npy", npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", make([]float32, 6)), 0, "Fortran"},
		"flat":          {"f.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", make([]float32, 6)), 0, "two dimensions"},
		"no samples":    {"f.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 0), }", []float32{}), 0, "0 samples"},
		"one epoch":     {"f.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 6), }", make([]float32, 6)), 0, "two epochs"},
		"others":        {"f.npy", good, 3, "has 2 samples"},
		"unknown":       {"f.f32", make([]byte, 24), 0, "--samples"},
		"no whole rows": {"f.f32", make([]byte, 24), 5, "20 bytes an epoch"},
	} {
		if _, err := Open(saved(t, c.file, c.b), c.samples); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := Open("/nowhere/f.npy", 0); err == nil {
		t.Error("a file that is not there")
	}
}

// FuzzOpen: whatever a file holds, it is a trace or refused, and takes no more memory than it is long.
func FuzzOpen(f *testing.F) {
	f.Add(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", make([]float32, 6)))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, fmt.Sprint(len(b), ".npy"))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		tr, err := Open(path, 0)
		if err != nil {
			return
		}
		for e := range min(tr.Epochs, 5) {
			if _, err := tr.row(e); err == nil && int64(tr.Samples) > int64(len(b)) {
				t.Errorf("%+v of %d bytes", tr, len(b))
			}
		}
	})
}
