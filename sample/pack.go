package sample

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/durable"
	"lcache/internal/disk/offheap"
)

// pack returns the packed form of a plain manifest.
func pack(plain []byte) ([]byte, error) {
	h, err := readHeader(bytes.NewReader(plain), uint64(len(plain)))
	if err != nil {
		return nil, err
	}
	longest := h.longest()
	turned, err := offheap.Make[byte](longest)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(turned)
	tried, err := offheap.Make[byte](longest)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(tried)
	p, err := flate.NewWriter(io.Discard, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	head := plain[:headerSize(len(h.table))]
	rows := packedFixed + packedRow*len(h.table)
	b := append(make([]byte, rows, rows+len(head)), head...)
	for i, s := range h.table {
		way, from := wayLeftOut, len(b)
		if s.id != secNameHashes {
			way, b = packSection(b, plain[s.off:s.off+s.len], widths[s.id], p, turned, tried)
		}
		row := b[packedFixed+packedRow*i:]
		binary.LittleEndian.PutUint32(row, uint32(way))
		binary.LittleEndian.PutUint32(row[4:], uint32(len(b)-from))
	}
	copy(b, manifestMagic)
	binary.LittleEndian.PutUint32(b[8:], packedVersion(h.version))
	binary.LittleEndian.PutUint32(b[12:], uint32(len(h.table)))
	binary.LittleEndian.PutUint64(b[16:], uint64(len(plain)))
	binary.LittleEndian.PutUint64(b[24:], uint64(len(b)+sumSize))
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b)), nil
}

// packSection appends a section to b in the smallest packing; of equal ones, in the first.
func packSection(b, section []byte, width int, p *flate.Writer, turned, tried []byte) (best int, packed []byte) {
	least := section
	last := waySteps
	if width == 0 {
		last = wayDeflated
	}
	for way := wayDeflated; way <= last; way++ {
		in := section
		if way > wayDeflated {
			in = turned[:len(section)]
			toPlanes(in, section, width, way == waySteps)
		}
		out := &held{mem: tried[:max(len(least), 1)-1]} // a result without room there is not smaller than least
		p.Reset(out)
		_, err := p.Write(in)
		if errors.Join(err, p.Close()) == nil {
			best, least = way, bytes.Clone(out.mem[:out.end])
		}
	}
	return best, append(b, least...)
}

// toPlanes writes the numbers of b, or their differences with steps, to planes, which has the same length.
func toPlanes(planes, b []byte, width int, steps bool) {
	n, before := len(b)/width, uint64(0)
	for i := range n {
		v := number(b[i*width:], width)
		step := v
		if steps {
			step, before = v-before, v
		}
		for k := range width {
			planes[k*n+i] = byte(step >> (8 * k))
		}
	}
	copy(planes[n*width:], b[n*width:])
}

func number(b []byte, width int) uint64 {
	if width == 4 {
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// held is a target in memory that does not grow. If the bytes do not fit, its error is errNotHeld.
type held struct {
	mem []byte
	end int
}

var errNotHeld = errors.New("no room in memory")

func (w *held) Write(b []byte) (int, error) {
	if len(b) > len(w.mem)-w.end {
		return 0, errNotHeld
	}
	w.end += copy(w.mem[w.end:], b)
	return len(b), nil
}

func (w *held) WriteAt(b []byte, off int64) (int, error) { return copy(w.mem[off:w.end], b), nil }

// encodePacked is encode for the packed form. A manifest of more than limit bytes, or that packing does not make smaller, is written plain.
func encodePacked(v *durable.Version, classes []string, entries Listing, limit int) (Fingerprint, error) {
	mem, err := offheap.Make[byte](limit) // only written pages take memory
	if err != nil {
		return Fingerprint{}, err
	}
	defer offheap.Free(mem)
	w := &held{mem: mem}
	print, err := encode(w, classes, entries)
	if errors.Is(err, errNotHeld) {
		return encode(v, classes, entries)
	}
	if err != nil {
		return print, err
	}
	b, err := pack(mem[:w.end])
	if err != nil {
		return print, err
	}
	if len(b) >= w.end {
		b = mem[:w.end]
	}
	_, err = v.Write(b)
	return print, err
}

// Pack returns the packed form of a manifest. It returns nil if the manifest is too large for that, or too small to gain anything.
func (m *Manifest) Pack() ([]byte, error) {
	if len(m.plain) < leastPacked {
		return nil, nil
	}
	return pack(m.plain)
}

// Rewrite replaces the file at path, from which the manifest was opened, by its packed form from Pack, or if that is nil by the plain form. A file that already has that form stays.
func (m *Manifest) Rewrite(path string, packed []byte) error { return m.rewrite(path, packed, nil) }

func (m *Manifest) rewrite(path string, packed []byte, trace durable.Trace) error {
	want := packed
	if want == nil {
		want = m.plain
	}
	if m.plain == nil || uint64(len(want)) == m.fileBytes {
		return nil
	}
	err := trace.Replace(path, func(v *durable.Version) error {
		if _, err := v.Write(want); err != nil {
			return err
		}
		again, err := holdManifest(v.File, len(want))
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		if !bytes.Equal(again.plain, m.plain) {
			err = fmt.Errorf("read back: %w: the manifest differs from the written one", ErrCorrupt)
		}
		return errors.Join(err, again.Close())
	})
	if err != nil {
		return fmt.Errorf("write manifest %s: %w", path, err)
	}
	m.fileBytes = uint64(len(want))
	return nil
}

// PlainBytes returns the length of the manifest's plain form.
func (m *Manifest) PlainBytes() uint64 { return m.head.length }

// FileBytes returns the length of the file: less than PlainBytes if it is packed.
func (m *Manifest) FileBytes() uint64 { return m.fileBytes }
