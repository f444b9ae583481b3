package records

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A tf.train.Example is a message of Protocol Buffers:
//
//	message Example   { Features features = 1; }
//	message Features  { map<string, Feature> feature = 1; }   // an entry has the fields key = 1 and value = 2
//	message Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
//	message BytesList { repeated bytes value = 1; }
//	message FloatList { repeated float value = 1; }           // packed: all values are one field
//	message Int64List { repeated int64 value = 1; }           // packed, or one field for each
//
// The bytes of a bytes feature with one value, and the values of a packed float feature, are one range of the record.

// exampleWanted is what a listing needs of an Example.
type exampleWanted struct {
	features   []string // parts, in this order; none: the whole record
	label      string   // an integer feature; "": none
	unlabelled bool     // labels are not needed
}

// exampleParser finds features of Examples. A field that comes twice counts as Protocol Buffers says: the last value of a key wins.
type exampleParser struct {
	wanted *exampleWanted
	table  *Table
	parts  []int // of the table, by feature

	c     cursor
	start int64  // of the record
	found []cell // by feature
	label int64
	seen  bool // the label
	lists int  // of the feature that is being parsed
	cells []Cell
}

// cell is a feature of one record.
type cell struct {
	has  bool
	err  error // why it can't be a part
	off  int64
	size int64
}

func (p *exampleParser) begin(wanted *exampleWanted, t *Table) error {
	p.wanted, p.table = wanted, t
	names := wanted.features
	if len(names) == 0 {
		names = []string{defaultPart}
	}
	for _, name := range names {
		k, err := t.Part(name)
		if err != nil {
			return err
		}
		p.parts = append(p.parts, k)
	}
	p.found = make([]cell, len(wanted.features))
	return nil
}

// errExample means that a record is not an Example.
var errExample = errors.New("it is not a tf.train.Example: leave out --feature and --label-feature")

// parse adds the record of length bytes at the cursor.
func (p *exampleParser) parse(c cursor, length int64) error {
	p.c, p.start, p.seen, p.label = c, c.pos(), false, 0
	clear(p.found)
	err := p.fields(p.start+length, func(field uint64, end int64) error {
		if field != 1 {
			return p.to(end)
		}
		return p.fields(end, func(field uint64, end int64) error {
			if field != 1 {
				return p.to(end)
			}
			return p.entry(end)
		})
	})
	if err != nil {
		return err
	}
	return p.add(length)
}

// add adds the record that was parsed.
func (p *exampleParser) add(length int64) error {
	p.cells = p.cells[:0]
	if len(p.wanted.features) == 0 {
		p.cells = append(p.cells, Cell{Part: p.parts[0], Off: p.start, Size: length})
	}
	for i, f := range p.found {
		if f.err != nil {
			return fmt.Errorf("feature %s %w", clip(p.wanted.features[i]), f.err)
		}
		if f.has {
			p.cells = append(p.cells, Cell{Part: p.parts[i], Off: f.off, Size: f.size})
		}
	}
	if p.wanted.label != "" && !p.wanted.unlabelled {
		if !p.seen {
			return fmt.Errorf("it has no integer feature %s: correct --label-feature, or give --labels or --flat", clip(p.wanted.label))
		}
		if p.label < math.MinInt32 || p.label > math.MaxInt32 {
			return fmt.Errorf("its label %s is %d, which is not an integer of 32 bits: give --labels or --flat", clip(p.wanted.label), p.label)
		}
	}
	return p.table.Add("", int32(p.label), p.cells...)
}

// entry parses one entry of the map of features.
func (p *exampleParser) entry(end int64) error {
	feature, isLabel, known := -1, false, false
	return p.fields(end, func(field uint64, end int64) error {
		switch {
		case field == 1:
			name, err := p.text(end)
			if err != nil {
				return err
			}
			p.lists = 0
			known, feature, isLabel = true, -1, name == p.wanted.label && name != ""
			for i, f := range p.wanted.features {
				if f == name {
					feature = i
					p.found[i] = cell{}
				}
			}
			if isLabel {
				p.seen = false
			}
			return nil
		case field == 2 && known && (feature >= 0 || isLabel):
			return p.value(end, feature, isLabel)
		case field == 2 && !known: // a writer may put the value first, but none does
			return errors.New("it has a feature whose name comes after its value, which lcache does not read")
		}
		return p.to(end)
	})
}

// value parses a Feature.
func (p *exampleParser) value(end int64, feature int, isLabel bool) error {
	return p.fields(end, func(kind uint64, end int64) error {
		var found cell
		values := 0
		err := p.eachValue(kind, end, func(off, size int64, n int64) {
			values++
			found = cell{has: true, off: off, size: size}
			if kind == 3 && isLabel && values == 1 {
				p.label, p.seen = n, true
			}
		})
		if err != nil {
			return err
		}
		if p.lists++; p.lists > 1 {
			return errors.New("it has a feature that is written in two pieces, which lcache does not read")
		}
		if isLabel && kind == 3 && values > 1 {
			return fmt.Errorf("its label %s has %d values", clip(p.wanted.label), values)
		}
		if feature < 0 {
			return nil
		}
		switch {
		case kind == 3:
			found.err = errors.New("has integers, which have no fixed size in a record: only bytes and floats can be parts")
		case kind == 1 && values > 1:
			found.err = fmt.Errorf("has %d values, and a part is one: leave out --feature, and decode the whole record", values)
		case kind == 2 && values > 1:
			found.err = errors.New("has floats that are not adjacent: leave out --feature, and decode the whole record")
		}
		p.found[feature] = found
		return nil
	})
}

// eachValue calls f for each value of a list: each bytes, each run of floats, each integer.
func (p *exampleParser) eachValue(kind uint64, end int64, f func(off, size, n int64)) error {
	for p.c.pos() < end {
		key, err := p.varint(end)
		if err != nil {
			return err
		}
		field, wire := key>>3, key&7
		if field != 1 {
			if err := p.skipField(wire, end); err != nil {
				return err
			}
			continue
		}
		switch {
		case kind == 1 && wire == 2 || kind == 2 && wire == 2:
			size, err := p.length(end)
			if err != nil {
				return err
			}
			if kind == 2 && size%4 != 0 {
				return errExample
			}
			if size > 0 || kind == 1 {
				f(p.c.pos(), size, 0)
			}
			if err := p.c.skip(size); err != nil {
				return err
			}
		case kind == 2 && wire == 5:
			f(p.c.pos(), 4, 0)
			if err := p.skipField(wire, end); err != nil {
				return err
			}
		case kind == 3 && wire == 0:
			n, err := p.varint(end)
			if err != nil {
				return err
			}
			f(0, 0, int64(n))
		case kind == 3 && wire == 2:
			size, err := p.length(end)
			if err != nil {
				return err
			}
			for last := p.c.pos() + size; p.c.pos() < last; {
				n, err := p.varint(last)
				if err != nil {
					return err
				}
				f(0, 0, int64(n))
			}
		default:
			return errExample
		}
	}
	return nil
}

// fields calls f for each field of a message that ends at end, at the field's content. f must move to the end of the field.
func (p *exampleParser) fields(end int64, f func(field uint64, end int64) error) error {
	for p.c.pos() < end {
		key, err := p.varint(end)
		if err != nil {
			return err
		}
		if wire := key & 7; wire != 2 {
			if err := p.skipField(wire, end); err != nil {
				return err
			}
			continue
		}
		size, err := p.length(end)
		if err != nil {
			return err
		}
		if err := f(key>>3, p.c.pos()+size); err != nil {
			return err
		}
	}
	return nil
}

// skipField moves behind a field that is not needed.
func (p *exampleParser) skipField(wire uint64, end int64) error {
	size := int64(0)
	switch wire {
	case 0:
		_, err := p.varint(end)
		return err
	case 1:
		size = 8
	case 2:
		n, err := p.length(end)
		if err != nil {
			return err
		}
		size = n
	case 5:
		size = 4
	default:
		return errExample
	}
	if size > end-p.c.pos() {
		return errExample
	}
	return p.c.skip(size)
}

// length reads the length of a field, which must end at end or before.
func (p *exampleParser) length(end int64) (int64, error) {
	n, err := p.varint(end)
	if err == nil && n > uint64(end-p.c.pos()) {
		err = errExample
	}
	return int64(n), err
}

func (p *exampleParser) varint(end int64) (uint64, error) {
	b, err := p.c.peek(int(min(binary.MaxVarintLen64, end-p.c.pos())))
	if len(b) == 0 && err != nil {
		return 0, short(err)
	}
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, errExample
	}
	return n, p.c.skip(int64(size))
}

// text reads a key.
func (p *exampleParser) text(end int64) (string, error) {
	size := end - p.c.pos()
	if size > mostPeek {
		return "", fmt.Errorf("the name of a feature has %d bytes, at most %d", size, mostPeek)
	}
	b, err := p.c.peek(int(size))
	if int64(len(b)) < size {
		return "", short(err)
	}
	name := string(b)
	return name, p.c.skip(size)
}

func (p *exampleParser) to(end int64) error { return p.c.skip(end - p.c.pos()) }
