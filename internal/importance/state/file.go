package state

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"

	"lcache/internal/disk/durable"
	"lcache/internal/jsonbytes"
	"lcache/internal/trust"

	"github.com/zeebo/xxh3"
)

// The file importance-<name>, all numbers little-endian (docs/format.md):
//
//	┌───────┬─────────┬────────┬────────┬─────────┬────────────┬────────┬────────┬─────┐
//	│ magic │ version │ length │ header │ scorer  │ accuracies │ orders │ L part │ sum │
//	│  8 B  │   u32   │  u32   │  JSON  │         │            │        │        │ u64 │
//	└───────┴─────────┴────────┴────────┴─────────┴────────────┴────────┴────────┴─────┘
//
// The file is replaced whole at each boundary. The sum is xxh3-64 of all bytes before it. A damaged file is not used at all, because losing it costs
// only an epoch of plain order.
const (
	magic      = "lcacheIM"
	version    = 1
	versionTwo = 2 // for jobs that allow substitutes: an order may have two lists
	mostHeader = 1 << 20
	mostOrders = 8
)

// FilePrefix is the beginning of the file names.
const FilePrefix = "importance-"

// header is the JSON header of the file.
type header struct {
	Fingerprint string `json:"fingerprint"`
	Samples     int    `json:"samples"`
	Epoch       int    `json:"epoch"`
	Recipe      bool   `json:"recipe"` // the recipe of the job gives the order of plain epochs
	Config      Config `json:"config"`
}

// Bits for the parts of an order.
const (
	orderPlain = 1 << iota
	orderIndices
	orderUses
	orderOpen
	orderTwo // only in version 2
	orderAll = orderPlain | orderIndices | orderUses | orderOpen
)

// versionOf returns the version of a job's file. Without substitutes, the file has the bytes of version 1.
func versionOf(c Config) uint32 {
	if c.Substitute != "" {
		return versionTwo
	}
	return version
}

// Save replaces the file, and returns when it is durable. A [Saver] does that in the background.
func (s *State) Save() error {
	return durable.Replace(s.path, func(v *durable.Version) error { return s.encode(v) })
}

func (s *State) encode(to io.Writer) error {
	sum := xxh3.New()
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 1<<18)
	text, err := jsonbytes.Marshal(header{s.data.Fingerprint, len(s.data.Labels), s.epoch, s.recipe, s.Config})
	if err != nil {
		return err
	}
	head := append([]byte(magic), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(head[8:], versionOf(s.Config))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(text)))
	w.Write(append(head, text...)) // the writer keeps its first error for Flush
	if err := s.scorer.Save(w); err != nil {
		return err
	}
	if err := s.rep.Save(w); err != nil {
		return err
	}
	var epochs []int
	for epoch := range s.orders {
		epochs = append(epochs, epoch)
	}
	slices.Sort(epochs)
	put(w, uint32(len(epochs)))
	for _, epoch := range epochs {
		o, has := s.orders[epoch], uint32(0)
		for bit, is := range map[uint32]bool{orderPlain: o.Plain, orderIndices: o.Indices != nil, orderUses: o.uses != nil, orderOpen: o.Open != nil, orderTwo: o.Requested != nil} {
			if is {
				has |= bit
			}
		}
		put(w, uint32(epoch), has, uint32(len(o.Indices)))
		put(w, o.Indices...)
		putFloats(w, o.uses)
		put(w, o.Open...)
		put(w, o.Requested...)
		put(w, o.Kinds...)
	}
	if s.low == nil {
		put(w, 0)
	} else {
		put(w, 1, uint32(s.low.epoch), uint32(len(s.low.order)), uint32(len(s.low.high)))
		put(w, s.low.order...)
		put(w, s.low.high...)
		putFloats(w, s.low.uses)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = to.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64()))
	return err
}

// putEach is the number of values that are encoded at once.
const putEach = 1024

func put(w *bufio.Writer, numbers ...uint32) {
	for some := range slices.Chunk(numbers, putEach) {
		b := w.AvailableBuffer()
		for _, v := range some {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		w.Write(b)
	}
}

func putFloats(w *bufio.Writer, numbers []float32) {
	for some := range slices.Chunk(numbers, putEach) {
		b := w.AvailableBuffer()
		for _, v := range some {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		w.Write(b)
	}
}

// ErrDamaged is the class of errors about a damaged file.
var ErrDamaged = errors.New("the importance file is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Open restores the state of a job from its file. It returns a new state if the file is missing or damaged, or if it
// belongs to another dataset or to a job with other options. It logs a warning, unless the file is missing.
func Open(c Config, path string, data Dataset, recipe bool, log *slog.Logger) (*State, error) {
	s, err := New(c, path, data, recipe, log)
	if err != nil {
		return nil, err
	}
	f, err := trust.Open(path, os.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		s.Close()
		return nil, err
	}
	defer f.Close()
	if err := s.restore(f); err != nil {
		log.Warn("the saved importance of an earlier run is not used: this job starts without observations, with plain epochs", "name", c.Name, "why", err)
		if err := s.begin(0); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// restore reads the whole file. After an error the state may have a part of it.
func (s *State) restore(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	body := info.Size() - 8
	if body < 16 {
		return damaged("the file has only %d bytes", info.Size())
	}
	sum := xxh3.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, body)); err != nil {
		return err
	}
	var end [8]byte
	if _, err := f.ReadAt(end[:], body); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(end[:]) != sum.Sum64() {
		return damaged("its checksum does not match")
	}
	return s.decode(bufio.NewReaderSize(io.NewSectionReader(f, 0, body), 1<<18), body)
}

// decode reads the output of encode, without the sum. length is the number of available bytes; decode allocates no
// more than that.
func (s *State) decode(r *bufio.Reader, length int64) error {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return damaged("%v", err)
	}
	size := binary.LittleEndian.Uint32(head[12:])
	switch {
	case string(head[:8]) != magic:
		return damaged("it does not begin with %s", magic)
	case binary.LittleEndian.Uint32(head[8:]) != version && binary.LittleEndian.Uint32(head[8:]) != versionTwo:
		return damaged("it has version %d, but this program reads versions %d and %d", binary.LittleEndian.Uint32(head[8:]), version, versionTwo)
	case size > mostHeader:
		return damaged("its header has %d bytes", size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return damaged("%v", err)
	}
	var h header
	if err := jsonbytes.Unmarshal(text, &h); err != nil {
		return damaged("header: %v", err)
	}
	n := len(s.data.Labels)
	switch {
	case h.Fingerprint != s.data.Fingerprint || h.Samples != n:
		return fmt.Errorf("it belongs to another dataset: %s, this one is %s", h.Fingerprint, s.data.Fingerprint)
	case !s.Config.continues(h.Config):
		return fmt.Errorf("options changed since the earlier run: %s", s.Config.Differs(h.Config))
	case versionOf(h.Config) != binary.LittleEndian.Uint32(head[8:]):
		return damaged("it has version %d, and substitute %q", binary.LittleEndian.Uint32(head[8:]), h.Config.Substitute)
	case h.Epoch < 0 || h.Epoch > math.MaxInt32:
		return damaged("epoch %d", h.Epoch)
	}
	if err := s.scorer.Restore(r); err != nil {
		return err
	}
	if err := s.rep.Restore(r); err != nil {
		return err
	}
	in := &reader{r: r, left: length}
	s.decodeOrders(in, n, h.Recipe)
	s.decodeLow(in, n)
	if _, err := r.ReadByte(); in.err == nil && err != io.EOF {
		in.wrong("there are bytes after the last part")
	}
	s.epoch = h.Epoch
	return in.err
}

func (s *State) decodeOrders(in *reader, n int, recipe bool) {
	for range in.upTo(mostOrders, "the number of orders") {
		o := &Order{Epoch: int(in.upTo(math.MaxInt32, "an epoch"))}
		all := uint32(orderAll)
		if s.Config.Substitute != "" {
			all |= orderTwo
		}
		has, m := in.upTo(all, "the parts of an order"), in.u32()
		o.Plain = has&orderPlain != 0
		if has&orderIndices != 0 {
			o.Indices = in.indices(m, n, false)
		}
		if has&orderUses != 0 {
			o.uses = in.floats(n)
		}
		if has&orderOpen != 0 {
			o.Open = in.words((len(o.Indices) + 31) / 32)
		}
		if has&orderTwo != 0 {
			o.Requested = in.indices(m, n, false)
			o.Kinds = in.words((len(o.Indices) + 15) / 16)
			in.both(o)
		}
		if in.err != nil || o.Plain && recipe != s.recipe { // a plain epoch of the file must follow the same recipe
			o.free()
			continue
		}
		s.drop(o.Epoch)
		s.orders[o.Epoch] = o
	}
}

func (s *State) decodeLow(in *reader, n int) {
	if in.upTo(1, "a flag") == 0 || in.err != nil {
		return
	}
	l := &lowPart{epoch: int(in.upTo(math.MaxInt32, "an epoch"))}
	m, high := in.u32(), in.upTo(uint32(n), "the number of H-samples")
	l.order = in.indices(m, n, true)
	for range high {
		if i := in.u32(); int(i) >= n {
			in.wrong("index %d of %d samples", i, n)
			break
		} else {
			l.high = append(l.high, i)
		}
	}
	l.uses = in.floats(n)
	if s.low = l; in.err != nil {
		s.dropLow()
	}
}
