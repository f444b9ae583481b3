package state

import (
	"encoding/binary"
	"io"
	"math"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// reader reads numbers, and remembers the first error.
type reader struct {
	r    io.Reader
	left int64 // upper bound of the remaining bytes
	err  error
}

func (in *reader) wrong(format string, args ...any) {
	if in.err == nil {
		in.err = damaged(format, args...)
	}
}

func (in *reader) u32() uint32 {
	var b [4]byte
	if in.err == nil {
		if _, err := io.ReadFull(in.r, b[:]); err != nil {
			in.wrong("%v", err)
			return 0
		}
	}
	return binary.LittleEndian.Uint32(b[:])
}

func (in *reader) upTo(most uint32, what string) uint32 {
	v := in.u32()
	if v > most {
		in.wrong("%s is %d, greater than %d", what, v, most)
		return 0
	}
	return v
}

// indices reads count indices below n. If open is true, open positions are allowed.
func (in *reader) indices(count uint32, n int, open bool) []uint32 {
	if in.err == nil && int64(count)*4 > in.left {
		in.wrong("an order of %d samples", count)
	}
	if in.err != nil {
		return nil
	}
	a, err := offheap.MakeDense[uint32](int(count))
	if err != nil {
		in.err = err
		return nil
	}
	for k := range a {
		if a[k] = in.u32(); int64(a[k]) >= int64(n) && !(open && a[k] == sample.None) {
			in.wrong("index %d of %d samples", a[k], n)
			break
		}
	}
	if in.err != nil {
		offheap.Free(a)
		return nil
	}
	return a
}

// both checks the two lists of an order: they may differ only in the positions of substitutes.
func (in *reader) both(o *Order) {
	if in.err == nil && len(o.Requested) != len(o.Indices) {
		in.wrong("the served order has %d samples, the requested one %d", len(o.Indices), len(o.Requested))
	}
	for k := 0; in.err == nil && k < len(o.Requested); k++ {
		if kind := o.Kinds.At(k); kind > policy.Substitute || (kind == policy.Substitute) != (o.Requested[k] != o.Indices[k]) {
			in.wrong("sample %d is served for sample %d with unknown kind %d", o.Indices[k], o.Requested[k], uint8(kind))
		}
	}
}

// words reads n words.
func (in *reader) words(n int) []uint32 {
	if in.err != nil {
		return nil
	}
	a, err := offheap.Make[uint32](n)
	if err != nil {
		in.err = err
	}
	for k := range a {
		a[k] = in.u32()
	}
	return a
}

// floats reads n numbers that must be finite and at least 0.
func (in *reader) floats(n int) []float32 {
	if in.err != nil {
		return nil
	}
	a, err := offheap.MakeDense[float32](n)
	if err != nil {
		in.err = err
		return nil
	}
	for k := range a {
		if a[k] = math.Float32frombits(in.u32()); !(a[k] >= 0 && a[k] <= math.MaxFloat32) {
			in.wrong("an expected use is %v", a[k])
			break
		}
	}
	if in.err != nil {
		offheap.Free(a)
		return nil
	}
	return a
}
