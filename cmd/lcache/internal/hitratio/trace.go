package hitratio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"lcache/internal/importance/losses"
	"lcache/internal/usage"
	"lcache/sample"
)

// AR1 names the trace that is built in: the loss of a sample is log-normal, falls with training, and wanders as an autoregressive process of order 1; that of a
// fifth of the samples wanders far.
const AR1 = "ar1"

// A Trace has the loss of every sample in every epoch of a training, from a file or synthetic.
type Trace struct {
	Name    string // a file, or AR1
	Samples int
	Epochs  int   // that the file has; 0: any number
	begin   int64 // of the first loss in the file
	wide    bool  // the file has float64
}

// Open opens a trace: AR1 with a number of samples (0: 4,000), or a .npy file with a row of float32 or float64 for each epoch. Any other file has little-endian
// float32 in rows of that number of samples.
func Open(name string, samples int) (Trace, error) {
	t := Trace{Name: name, Samples: samples}
	switch {
	case samples < 0 || samples > sample.MaxSamples:
		return t, usage.Errorf("%d samples: give from 1 to %d", samples, uint32(sample.MaxSamples))
	case name == AR1:
		if samples == 0 {
			t.Samples = 4000
		}
		return t, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return t, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return t, err
	}
	if filepath.Ext(name) == ".npy" {
		if err := t.readHeader(f); err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
		if samples > 0 && samples != t.Samples {
			return t, usage.Errorf("%s has %d samples, not %d", name, t.Samples, samples)
		}
	} else if samples == 0 {
		return t, usage.Errorf("%s: its rows have no known length: give --samples, or a .npy file", name)
	}
	row := int64(t.Samples) * t.size()
	if t.Epochs == 0 {
		t.Epochs = int(min((info.Size()-t.begin)/row, math.MaxInt32))
	}
	if rest := info.Size() - t.begin - int64(t.Epochs)*row; rest != 0 || t.Epochs < 2 {
		return t, fmt.Errorf("%s has %d bytes: %d samples take %d bytes an epoch, and two epochs are the least", name, info.Size(), t.Samples, row)
	}
	return t, nil
}

func (t *Trace) size() int64 {
	if t.wide {
		return 8
	}
	return 4
}

var (
	npyKind  = regexp.MustCompile(`'descr': *'([^']*)'`)
	npyOrder = regexp.MustCompile(`'fortran_order': *True`)
	npyShape = regexp.MustCompile(`'shape': *\( *(\d{1,9}), *(\d{1,9}) *,? *\)`)
)

// readHeader reads the header of a .npy file.
func (t *Trace) readHeader(f *os.File) error {
	head := make([]byte, 12)
	if _, err := f.ReadAt(head, 0); err != nil || !bytes.HasPrefix(head, []byte("\x93NUMPY")) {
		return fmt.Errorf("no .npy file")
	}
	length := int64(binary.LittleEndian.Uint16(head[8:]))
	t.begin = 10
	if head[6] > 1 {
		length, t.begin = int64(binary.LittleEndian.Uint32(head[8:])), 12
	}
	if length > 1<<16 {
		return fmt.Errorf("a header of %d bytes", length)
	}
	text := make([]byte, length)
	if _, err := f.ReadAt(text, t.begin); err != nil {
		return err
	}
	t.begin += length
	kind, shape := npyKind.FindSubmatch(text), npyShape.FindSubmatch(text)
	switch {
	case kind == nil || string(kind[1]) != "<f4" && string(kind[1]) != "<f8":
		return fmt.Errorf("not of float32 or float64: %.100s", text)
	case npyOrder.Match(text):
		return fmt.Errorf("in Fortran's order: write numpy.ascontiguousarray of it")
	case shape == nil:
		return fmt.Errorf("not of two dimensions, epochs and samples: %.100s", text)
	}
	t.wide = string(kind[1]) == "<f8"
	t.Epochs, _ = strconv.Atoi(string(shape[1]))
	t.Samples, _ = strconv.Atoi(string(shape[2]))
	if t.Samples < 1 || t.Samples > sample.MaxSamples {
		return fmt.Errorf("%d samples: there may be from 1 to %d", t.Samples, uint32(sample.MaxSamples))
	}
	return nil
}

// losses returns what gives the losses of each epoch, from 0 on.
func (t Trace) losses(seed uint64) func(epoch int) ([]float32, error) {
	if t.Name == AR1 {
		g := losses.New(t.Samples, seed)
		return func(epoch int) ([]float32, error) { return g.Epoch(epoch), nil }
	}
	return t.row
}

// row reads the losses of an epoch.
func (t Trace) row(epoch int) ([]float32, error) {
	f, err := os.Open(t.Name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, int64(t.Samples)*t.size())
	if _, err := f.ReadAt(b, t.begin+int64(epoch)*int64(len(b))); err != nil {
		return nil, fmt.Errorf("epoch %d of %s: %w", epoch, t.Name, err)
	}
	losses := make([]float32, t.Samples)
	for i := range losses {
		if t.wide {
			losses[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		} else {
			losses[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		if x := float64(losses[i]); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("%s: the loss of sample %d in epoch %d is %v", t.Name, i, epoch, x)
		}
	}
	return losses, nil
}
