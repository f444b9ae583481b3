package shuffle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Type is how a parameter's text is read.
type Type string

// The types of parameters.
const (
	Int     Type = "int"     // a decimal number that fits in 63 bits
	Integer Type = "integer" // a decimal number of any size, perhaps negative
	Number  Type = "number"  // a JSON number
	Bool    Type = "bool"    // true or false
	Word    Type = "string"  // a bare string, one of Param.Values if there are any
	Ints    Type = "ints"    // a JSON list of numbers, none negative, or a file of little-endian uint32
	Numbers Type = "numbers" // a JSON list of numbers, or a file of little-endian float64
	Range   Type = "range"   // a JSON list [start, stop, step], as Python's range
	Pairs   Type = "pairs"   // a JSON list of pairs of numbers, none negative
	File    Type = "file"    // a file's name
)

// value is a parameter as read. Only the field of its type is meaningful.
type value struct {
	set     bool // given, or with a default
	bool    bool
	int     int64
	big     *big.Int
	float   float64
	word    string
	ints    []uint32
	numbers []float64
	pairs   [][2]int64
	span    span
	data    []byte
	key     string // canonical text
}

// parse reads the parameter's text by its type.
func (p Param) parse(text string) (v value, err error) {
	if why, ok := p.refuse[strings.TrimRight(text, ":0123456789")]; ok { // cuda:1 is cuda
		return v, fmt.Errorf("%s: %s%s", text, why, pushInstead)
	}
	v.key = text
	switch p.Type {
	case Int:
		err = v.parseInt(text)
	case Integer:
		if v.big, err = parseInteger(text); err == nil {
			v.key = v.big.String()
		}
	case Number:
		err = v.parseNumber(text)
	case Bool:
		if v.bool = text == "true"; !v.bool && text != "false" {
			err = fmt.Errorf("%q is neither true nor false", clip(text))
		}
	case Word:
		if v.word = text; len(p.Values) > 0 && !slices.Contains(p.Values, text) {
			err = fmt.Errorf("%q is not one of %s", clip(text), strings.Join(p.Values, ", "))
		}
	case Range:
		v.span, err = parseSpan(text)
		v.key = fmt.Sprint(v.span)
	case Pairs:
		if json.Unmarshal([]byte(text), &v.pairs) != nil {
			err = fmt.Errorf("%q is not a JSON list of pairs of numbers", clip(text))
		}
		v.key = fmt.Sprint(v.pairs)
	case Ints, Numbers:
		err = p.parseList(text, &v)
	case File:
		v.data, err = readFile(text)
		v.key = digest(v.data)
	default:
		err = fmt.Errorf("type %q is not known", p.Type)
	}
	return v, err
}

// parseInt reads a whole number within the limit of samples.
func (v *value) parseInt(text string) (err error) {
	if v.int, err = strconv.ParseInt(text, 10, 64); err != nil {
		return fmt.Errorf("%q is not a whole number", clip(text))
	}
	if v.int < 0 || v.int > maxSamples {
		return fmt.Errorf("%d is not in 0 to %d", v.int, uint32(maxSamples))
	}
	v.key = strconv.FormatInt(v.int, 10)
	return nil
}

// parseNumber reads a finite number.
func (v *value) parseNumber(text string) (err error) {
	v.float, err = strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v.float) || math.IsInf(v.float, 0) {
		return fmt.Errorf("%q is not a number", clip(text))
	}
	v.key = strconv.FormatFloat(v.float, 'g', -1, 64)
	return nil
}

// parseList reads a list given in place, or from the file that it names.
func (p Param) parseList(text string, v *value) error {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		var err error
		if p.Type == Ints {
			err = json.Unmarshal([]byte(text), &v.ints)
		} else {
			err = json.Unmarshal([]byte(text), &v.numbers)
		}
		if err != nil {
			return fmt.Errorf("%q is not a JSON list of such numbers", clip(text))
		}
		return v.listKey(p.Type)
	}
	data, err := readFile(text)
	if err != nil {
		return err
	}
	size := 4
	if p.Type == Numbers {
		size = 8
	}
	if len(data)%size != 0 {
		return fmt.Errorf("file %s has %d bytes, not a multiple of %d", text, len(data), size)
	}
	if p.Type == Ints {
		v.ints = make([]uint32, len(data)/size)
		for i := range v.ints {
			v.ints[i] = binary.LittleEndian.Uint32(data[i*size:])
		}
	} else {
		v.numbers = make([]float64, len(data)/size)
		for i := range v.numbers {
			v.numbers[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[i*size:]))
		}
	}
	return v.listKey(p.Type)
}

// listKey makes the canonical text of a list from its numbers: it is the same given in place or from a file.
func (v *value) listKey(t Type) error {
	h := sha256.New()
	var buf [8]byte
	if t == Ints {
		for _, x := range v.ints {
			binary.LittleEndian.PutUint32(buf[:], x)
			h.Write(buf[:4])
		}
	} else {
		for _, x := range v.numbers {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("%v is not a finite number", x)
			}
			binary.LittleEndian.PutUint64(buf[:], math.Float64bits(x))
			h.Write(buf[:])
		}
	}
	v.key = fmt.Sprintf("sha256:%x", h.Sum(nil))
	return nil
}

// span is a Python range.
type span struct {
	start, step int64
	count       int
}

// max is the largest number in the range, -1 for an empty one.
func (s span) max() int64 {
	if s.count == 0 {
		return -1
	}
	return max(s.start, s.start+int64(s.count-1)*s.step)
}

func parseSpan(text string) (span, error) {
	var r []int64
	if json.Unmarshal([]byte(text), &r) != nil || len(r) < 2 || len(r) > 3 {
		return span{}, fmt.Errorf("%q is not a JSON list [start, stop, step]", clip(text))
	}
	s := span{start: r[0], step: 1}
	if len(r) == 3 {
		s.step = r[2]
	}
	for _, x := range r {
		if x > maxSamples || x < -maxSamples {
			return span{}, fmt.Errorf("%d is out of range", x)
		}
	}
	switch {
	case s.step == 0:
		return span{}, fmt.Errorf("its step is 0")
	case s.step > 0 && r[1] > r[0]:
		s.count = int((r[1] - r[0] + s.step - 1) / s.step)
	case s.step < 0 && r[1] < r[0]:
		s.count = int((r[1] - r[0] + s.step + 1) / s.step)
	}
	if s.count > 0 && min(s.start, s.start+int64(s.count-1)*s.step) < 0 {
		return span{}, fmt.Errorf("%q has numbers below 0", clip(text))
	}
	return s, nil
}

func parseInteger(text string) (*big.Int, error) {
	if len(text) > maxDigits {
		return nil, fmt.Errorf("a number of %d characters; the limit is %d", len(text), maxDigits)
	}
	x, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, fmt.Errorf("%q is not a decimal number", clip(text))
	}
	return x, nil
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("file of the parameter: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", name, int64(maxFile))
	}
	return os.ReadFile(name)
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// clip shortens a text for an error.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
