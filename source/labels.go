package source

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"lcache/sample"
)

// A file of labels is CSV with two fields in a row, name and label. It has one row for each sample, in any order. A
// name is the sample's name in the listing, byte for byte. If all labels are integers, they are used as they are, and
// the dataset has no classes. If all are text, the classes are the texts, sorted as Python sorts them, and a label is the
// position of its class. A first row that names no sample is a header if its second field is "label", "class" or
// "target".

// namesShown is the number of unlabelled samples that an error names.
const namesShown = 3

// labels is a file of labels that is being applied to a listing.
type labels struct {
	path    string
	entries []sample.Entry
	index   map[string]int // position in entries, by name
	lines   []int          // by sample: the line with its label; 0: none yet
	numbers bool           // the labels are integers
	classes []string       // otherwise: the texts, in order of their first row
	place   map[string]int32
}

// applyLabels sets the labels of the entries from a file, and returns its classes; none if the labels are integers.
// The file must have every name exactly once.
func applyLabels(path string, entries []sample.Entry) (classes []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open labels %s: %w", clip(path), cause(err))
	}
	defer f.Close()
	l := &labels{path: path, entries: entries, index: make(map[string]int, len(entries)), lines: make([]int, len(entries)), place: map[string]int32{}}
	for i := range entries {
		l.index[entries[i].Name] = i
	}
	if err := l.read(f); err != nil {
		return nil, fmt.Errorf("labels %s: %w", clip(path), err)
	}
	if err := l.checkMissing(); err != nil {
		return nil, fmt.Errorf("labels %s: %w", clip(path), err)
	}
	return l.sortClasses(), nil
}

func (l *labels) read(f io.Reader) error {
	in := bufio.NewReaderSize(f, 1<<20)
	if mark, err := in.Peek(3); err == nil && string(mark) == "\ufeff" {
		in.Discard(3) // the byte order mark of some spreadsheets
	}
	r := csv.NewReader(in)
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	for first := true; ; first = false {
		row, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if wrong := new(csv.ParseError); errors.As(err, &wrong) {
			return fmt.Errorf("line %d: %w", wrong.Line, wrong.Err)
		}
		if err != nil {
			return err
		}
		line, _ := r.FieldPos(0)
		if first && l.isHeader(row) {
			continue
		}
		if err := l.take(row, line); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func (l *labels) isHeader(row []string) bool {
	if len(row) != 2 {
		return false
	}
	_, known := l.index[row[0]]
	return !known && slices.Contains([]string{"label", "class", "target"}, strings.ToLower(strings.TrimSpace(row[1])))
}

// take sets the label of one sample.
func (l *labels) take(row []string, line int) error {
	if len(row) != 2 {
		return fmt.Errorf("%d fields: want name,label (put a name with a comma in quotes)", len(row))
	}
	i, known := l.index[row[0]]
	if !known {
		return fmt.Errorf("the source has no sample %s: give its path below the source, with / between folders, or remove the line", clip(row[0]))
	}
	if l.lines[i] != 0 {
		return fmt.Errorf("sample %s has a label in line %d already: remove one of them", clip(row[0]), l.lines[i])
	}
	first := len(l.place) == 0 && !l.numbers
	l.lines[i] = line
	text := strings.TrimSpace(row[1])
	if text == "" {
		return fmt.Errorf("sample %s has an empty label", clip(row[0]))
	}
	n, err := strconv.ParseInt(text, 10, 64)
	isNumber := err == nil || errors.Is(err, strconv.ErrRange)
	switch {
	case first:
		l.numbers = isNumber
	case isNumber != l.numbers:
		return fmt.Errorf("label %s, but earlier labels are %s: make all of them numbers, or all of them text", clip(text), l.kind())
	}
	if l.numbers {
		if err != nil || n < math.MinInt32 || n > math.MaxInt32 {
			return fmt.Errorf("label %s does not fit 32 bits", clip(text))
		}
		l.entries[i].Label = int32(n)
		return nil
	}
	class, known := l.place[text]
	if !known {
		text = strings.Clone(text)
		class = int32(len(l.classes))
		l.classes, l.place[text] = append(l.classes, text), class
	}
	l.entries[i].Label = class
	return nil
}

func (l *labels) kind() string {
	if l.numbers {
		return "numbers"
	}
	return "text"
}

func (l *labels) checkMissing() error {
	var missing []string
	n := 0
	for i := range l.entries {
		if l.lines[i] != 0 {
			continue
		}
		if n++; n <= namesShown {
			missing = append(missing, clip(l.entries[i].Name))
		}
	}
	if n == 0 {
		return nil
	}
	more := ""
	if n > namesShown {
		more = ", …"
	}
	return fmt.Errorf("%d of %d samples have no label: %s%s: add a line for each", n, len(l.entries), strings.Join(missing, ", "), more)
}

// sortClasses sorts the classes and renumbers the labels.
func (l *labels) sortClasses() []string {
	if l.numbers || len(l.classes) == 0 {
		return nil
	}
	sorted := slices.Clone(l.classes)
	slices.SortFunc(sorted, comparePython)
	to := make([]int32, len(sorted))
	for place, class := range sorted {
		to[l.place[class]] = int32(place)
	}
	for i := range l.entries {
		l.entries[i].Label = to[l.entries[i].Label]
	}
	return sorted
}
