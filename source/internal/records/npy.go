package records

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// npy:PATTERN has the rows of numpy's .npy files, and bin:PATTERN the records of one size of files without a header. A .npy file is
//
//	"\x93NUMPY", u8 major version, u8 minor version
//	u16 (version 1) or u32 (versions 2 and 3)   length of the header, little-endian
//	header: a dictionary of Python with descr, fortran_order and shape
//	the values
//
// With --record-bytes, records are windows over the values, that do not overlap.

const (
	npyMagic = "\x93NUMPY"

	// mostHeader is the maximum length of a header. That of a structured type with a thousand fields has less.
	mostHeader = mostPeek - 12
)

// rows is the format of npy: and bin:.
type rows struct {
	PatternShards
	npy   bool
	bytes int64  // of a record; 0: a row of the array
	dtype string // of the values, which a .npy file must have; "": any
}

func newNPY(set Settings) (Format, error) {
	bytes, err := set.recordBytes()
	return &rows{npy: true, bytes: bytes, dtype: set.dtype}, err
}

func newBin(set Settings) (Format, error) {
	bytes, err := set.recordBytes()
	if err == nil && bytes == 0 {
		err = errors.New("the size of a record is not known: give --record-bytes, or --dtype and --shape")
	}
	return &rows{bytes: bytes}, err
}

// Index implements [Format].
func (f *rows) Index(ctx context.Context, _ Files, _ string, o Object, t *Table) error {
	return f.read(newCursor(ctx, o), o.Size(), t)
}

// IndexStream implements [Sequential]. The size of a packed file is only known at its end.
func (f *rows) IndexStream(ctx context.Context, _ string, r io.Reader, t *Table) error {
	c := newStreamCursor(ctx, r)
	a, err := f.array(c)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, c.from)
	if err != nil {
		return err
	}
	return f.add(a, a.start+n, t)
}

func (f *rows) read(c cursor, size int64, t *Table) error {
	a, err := f.array(c)
	if err != nil {
		return err
	}
	return f.add(a, size, t)
}

// array is the place of the values of a file.
type array struct {
	start int64
	rows  int64 // -1: as many as the file has
	row   int64 // bytes of one
	descr any   // type of a value, as in the header
	item  int64 // bytes of a value
	flat  bool  // it has one dimension, of numbers
}

// array returns the array of the file at the cursor, which it moves to the values.
func (f *rows) array(c cursor) (array, error) {
	if !f.npy {
		return array{rows: -1, row: f.bytes, item: 1}, nil
	}
	a, err := readNPY(c)
	if err != nil {
		return a, err
	}
	if f.dtype != "" && !isDtype(f.dtype, a.descr) {
		return a, fmt.Errorf("its values have the type %s, and --dtype says %s: correct --dtype and --shape, or give --record-bytes", clip(fmt.Sprint(a.descr)), clip(f.dtype))
	}
	return a, c.skip(a.start - c.pos())
}

// add adds the rows of a file of size bytes.
func (f *rows) add(a array, size int64, t *Table) error {
	if _, err := t.Part(defaultPart); err != nil {
		return err
	}
	n := size - a.start
	if a.rows >= 0 {
		if a.row == 0 || a.rows == 0 {
			return fmt.Errorf("its array has %d rows of %d bytes: leave it out", a.rows, a.row)
		}
		if a.rows > n/a.row {
			return fmt.Errorf("it is truncated: its header announces %d rows of %d bytes, but it has %d bytes after it: copy or write it again", a.rows, a.row, n)
		}
		if more := n - a.rows*a.row; more > 0 {
			return fmt.Errorf("it has %d bytes after its array of %d rows, and lcache reads one array of a file", more, a.rows)
		}
	}
	bytes := a.row
	if f.bytes > 0 {
		if bytes = f.bytes; bytes%a.item != 0 {
			return fmt.Errorf("the record's size is %d by --record-bytes, but a value has %d bytes: give a multiple", bytes, a.item)
		}
	} else if a.flat {
		return fmt.Errorf("its array has one dimension, so a record would be one number of %d bytes: give --record-bytes, or --dtype and --shape, the size of a window", a.item)
	}
	if bytes > math.MaxUint32 {
		return fmt.Errorf("a record has %d bytes, and a sample must have less than 4 GiB", bytes)
	}
	records := n / bytes
	if records > math.MaxUint32-1 {
		return fmt.Errorf("it has %d records of %d bytes, and lcache reads less than 2³² of a file: give a larger --record-bytes, or split it", records, bytes)
	}
	if records == 0 {
		return fmt.Errorf("it has %d bytes, and a record %d: give another size of a record, or leave the file out", n, bytes)
	}
	t.Rest = n - records*bytes
	t.Grow(int(records))
	for i := range records {
		if err := t.Add("", 0, Cell{Off: a.start + i*bytes, Size: bytes}); err != nil {
			return err
		}
	}
	return nil
}

// readNPY reads the header of a .npy file.
func readNPY(c cursor) (a array, err error) {
	head, err := c.peek(12)
	if err != nil && err != io.EOF {
		return a, err
	}
	if err := packed(head); err != nil {
		return a, err
	}
	if strings.HasPrefix(string(head), "PK\x03\x04") {
		return a, errors.New("it is a zip file, such as a .npz: write its array with numpy.save")
	}
	if !strings.HasPrefix(string(head), npyMagic) || len(head) < 12 {
		return a, errors.New("it is not a .npy file: check the pattern")
	}
	begin, length := int64(10), int64(binary.LittleEndian.Uint16(head[8:]))
	switch head[6] {
	case 1:
	case 2, 3:
		begin, length = 12, int64(binary.LittleEndian.Uint32(head[8:]))
	default:
		return a, fmt.Errorf("it has version %d of the format, and lcache reads 1 to 3", head[6])
	}
	if length > mostHeader {
		return a, fmt.Errorf("its header has %d bytes, at most %d", length, mostHeader)
	}
	text, err := c.peek(int(begin + length))
	if int64(len(text)) < begin+length {
		if err == io.EOF {
			err = errors.New("it is truncated in its header: copy or write it again")
		}
		return a, err
	}
	a, err = parseHeader(string(text[begin:]))
	a.start = begin + length
	if err != nil {
		err = fmt.Errorf("its header: %w", err)
	}
	return a, err
}

// parseHeader parses the dictionary of a header.
func parseHeader(text string) (a array, err error) {
	value, err := parseLiteral(text)
	if err != nil {
		return a, err
	}
	header, ok := value.(map[string]any)
	if !ok {
		return a, errors.New("it is not a dictionary")
	}
	shape, ok1 := header["shape"].([]any)
	fortran, ok2 := header["fortran_order"].(bool)
	if !ok1 || !ok2 || header["descr"] == nil {
		return a, errors.New("it lacks descr, fortran_order or shape")
	}
	a.descr = header["descr"]
	if a.item, err = itemSize(a.descr, 0); err != nil {
		return a, err
	}
	if len(shape) == 0 {
		return a, errors.New("its array has no dimension: save an array of samples")
	}
	if fortran && len(shape) > 1 {
		return a, errors.New("its array is in Fortran order, so its rows are not contiguous: save numpy.ascontiguousarray(array)")
	}
	_, named := header["descr"].([]any)
	kind, _ := header["descr"].(string)
	a.flat = len(shape) == 1 && !named && strings.ContainsAny(kind[:min(len(kind), 2)], "biufc?")
	a.row = a.item
	for i, d := range shape {
		n, ok := d.(int64)
		if !ok || n < 0 || n > 0 && a.row > math.MaxInt64/n {
			return a, fmt.Errorf("its shape %s is not possible", clip(fmt.Sprint(shape)))
		}
		if i == 0 {
			a.rows = n
		} else {
			a.row *= n
		}
	}
	return a, nil
}

// itemSize returns the number of bytes of a value with a type's description, such as "<f4" or a list of fields.
func itemSize(descr any, depth int) (int64, error) {
	wrong := fmt.Errorf("its type %s is unknown", clip(fmt.Sprint(descr)))
	switch d := descr.(type) {
	case string:
		if strings.Contains(d, "O") {
			return 0, errors.New("its values are objects of Python, which are pickled: save numbers")
		}
		if len(d) < 3 || !strings.ContainsRune("<>|=", rune(d[0])) || !strings.ContainsRune("?biufcSUVMm", rune(d[1])) {
			return 0, wrong
		}
		digits, _, _ := strings.Cut(d[2:], "[") // a unit of time follows
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n < 0 {
			return 0, wrong
		}
		if d[1] == 'U' {
			n *= 4
		}
		if n == 0 {
			return 0, errors.New("its values have no bytes")
		}
		return n, nil
	case []any:
		return fieldsSize(d, depth, wrong)
	}
	return 0, wrong
}

// fieldsSize returns the number of bytes of a structured value: fields (name, type) or (name, type, shape).
func fieldsSize(fields []any, depth int, wrong error) (total int64, err error) {
	if depth > 8 || len(fields) == 0 {
		return 0, wrong
	}
	for _, field := range fields {
		f, ok := field.([]any)
		if !ok || len(f) < 2 || len(f) > 3 {
			return 0, wrong
		}
		n, err := itemSize(f[1], depth+1)
		if err != nil {
			return 0, err
		}
		if len(f) == 3 {
			shape, _ := f[2].([]any)
			for _, d := range shape {
				k, ok := d.(int64)
				if !ok || k <= 0 || n > math.MaxInt32/k {
					return 0, wrong
				}
				n *= k
			}
		}
		if total += n; total > math.MaxInt32 {
			return 0, wrong
		}
	}
	return total, nil
}
