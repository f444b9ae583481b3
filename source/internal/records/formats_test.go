package records

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// listed lists one shard, in both ways, and describes its samples or the error. The two ways must agree.
func listed(t testing.TB, kind string, set Settings, files memory, name string) string {
	t.Helper()
	k, ok := Find(kind)
	if !ok {
		t.Fatal(kind)
	}
	f, err := k.New(set)
	if err != nil {
		return err.Error()
	}
	if _, err := f.Shards(t.Context(), files, name); err != nil {
		return err.Error()
	}
	o := memoryFile(files[name])
	tb := NewTable(o.Size())
	got := describe(t, tb, f.Index(t.Context(), files, name, o, tb), o.Size())
	if s, ok := f.(Sequential); ok {
		tb := NewTable(-1)
		if again := describe(t, tb, s.IndexStream(t.Context(), name, bytes.NewReader(o), tb), math.MaxInt64); again != got && (isListing(got) || isListing(again)) && !strings.Contains(got, "but the file has") {
			t.Errorf("%s: by position: %s\nfront to back: %s", kind, got, again)
		}
	}
	return got
}

func isListing(described string) bool { return described == "" || described[0] == ' ' }

// describe formats the samples of a table: key, label, and the ranges of its parts.
func describe(t testing.TB, tb *Table, err error, size int64) string {
	if err != nil {
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
		return err.Error()
	}
	var b strings.Builder
	for i := range tb.Len() {
		key, label, cells := tb.Row(i, nil)
		fmt.Fprintf(&b, " %s=%d", key, label)
		for _, c := range cells {
			if c.Off < 0 || c.Size < 0 || c.Off > size || c.Size > size-c.Off {
				t.Fatalf("row %d: %+v in %d bytes", i, c, size)
			}
			fmt.Fprintf(&b, "/%s:%d+%d", tb.Parts()[c.Part], c.Off, c.Size)
		}
	}
	return b.String()
}

// tfrecords returns a TFRecord file.
func tfrecords(data ...[]byte) []byte {
	var b []byte
	for _, d := range data {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(d)))
		b = append(b, head...)
		b = binary.LittleEndian.AppendUint32(b, masked(crc32.Checksum(head, castagnoli)))
		b = append(b, d...)
		b = binary.LittleEndian.AppendUint32(b, masked(crc32.Checksum(d, castagnoli)))
	}
	return b
}

// field returns a field of Protocol Buffers with bytes.
func field(number byte, content ...[]byte) []byte {
	c := bytes.Join(content, nil)
	return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(c))), c...)
}

// featureOf returns an entry of the map of features.
func featureOf(name string, kind byte, list ...[]byte) []byte {
	return field(1, field(1, []byte(name)), field(2, field(kind, list...)))
}

func example(features ...[]byte) []byte { return field(1, features...) }

func damaged(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

func TestTFRecord(t *testing.T) {
	three := tfrecords([]byte("abc"), nil, bytes.Repeat([]byte("x"), 100))
	for want, file := range map[string][]byte{
		" =0/data:12+3 =0/data:31+0 =0/data:47+100": three,
		"": nil,
		"it is truncated: record 2, which begins at byte 35, is not whole: copy or write it again":                   three[:100],
		"it is truncated: record 1, which begins at byte 19, is not whole: copy or write it again":                   three[:25],
		"record 1, at byte 19, has a wrong checksum of its length: the file is damaged: copy or write it again":      damaged(three, 20),
		"it is not a TFRecord file: the checksum of the first length is wrong":                                       []byte("not such a file"),
		"it is compressed with gzip, so its records have no positions: unpack it, or name it *.gz and give --stream": []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x00\x00"),
		"record 0, at byte 0, has 9223372036854775808 bytes, and a sample must have less than 4 GiB":                 hugeRecord(1 << 63),
		"it is truncated: record 0, which begins at byte 0, is not whole: copy or write it again":                    hugeRecord(math.MaxUint32),
	} {
		if got := listed(t, "tfrecord", Settings{}, memory{"a": file}, "a"); got != want {
			t.Errorf("%.40q:\n%s\nwant\n%s", file, got, want)
		}
	}
}

func hugeRecord(size uint64) []byte {
	head := binary.LittleEndian.AppendUint64(nil, size)
	return binary.LittleEndian.AppendUint32(head, masked(crc32.Checksum(head, castagnoli)))
}

func TestExample(t *testing.T) {
	value := func(s string) []byte { return field(1, []byte(s)) }
	one := tfrecords(example(
		featureOf("image/encoded", 1, value("PIXELS")),
		featureOf("image/label", 3, field(1, []byte{0x87, 0x01})),
		featureOf("box", 2, field(1, make([]byte, 16))),
		featureOf("ids", 3, field(1, []byte{1, 2, 3})),
		featureOf("words", 1, value("a"), value("b")),
		featureOf("none", 1),
	))
	at := func(what string) int { return bytes.Index(one, []byte(what)) }
	for name, c := range map[string]struct {
		set  Settings
		want string
	}{
		"a part":        {Settings{Features: []string{"image/encoded"}}, fmt.Sprintf(" =0/image/encoded:%d+6", at("PIXELS"))},
		"label":         {Settings{Features: []string{"image/encoded"}, LabelFeature: "image/label"}, fmt.Sprintf(" =135/image/encoded:%d+6", at("PIXELS"))},
		"label only":    {Settings{LabelFeature: "image/label"}, fmt.Sprintf(" =135/data:12+%d", len(one)-16)},
		"flat":          {Settings{LabelFeature: "missing", NoLabels: true}, fmt.Sprintf(" =0/data:12+%d", len(one)-16)},
		"floats":        {Settings{Features: []string{"box", "image/encoded"}}, fmt.Sprintf(" =0/box:%d+16/image/encoded:%d+6", at("box")+9, at("PIXELS"))},
		"missing":       {Settings{Features: []string{"nothing"}}, " =0"},
		"empty":         {Settings{Features: []string{"none"}}, " =0"},
		"integers":      {Settings{Features: []string{"ids"}}, `record 0, at byte 0: feature "ids" has integers, which have no fixed size in a record: only bytes and floats can be parts`},
		"several":       {Settings{Features: []string{"words"}}, `record 0, at byte 0: feature "words" has 2 values, and a part is one: leave out --feature, and decode the whole record`},
		"no label":      {Settings{LabelFeature: "box"}, `record 0, at byte 0: it has no integer feature "box": correct --label-feature, or give --labels or --flat`},
		"several label": {Settings{LabelFeature: "ids"}, `record 0, at byte 0: its label "ids" has 3 values`},
	} {
		if got := listed(t, "tfrecord", c.set, memory{"a": one}, "a"); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
	set := Settings{Features: []string{"image/encoded"}}
	if got, want := listed(t, "tfrecord", set, memory{"a": tfrecords([]byte("text"))}, "a"), "record 0, at byte 0: it is not a tf.train.Example: leave out --feature and --label-feature"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := listed(t, "tfrecord", set, memory{"a": damaged(one, at("PIXELS"))}, "a"); got != "record 0, at byte 0: "+errSum.Error() {
		t.Error(got)
	}
}

// FuzzTFRecord: any bytes as records, with right checksums, give an error or ranges in the file.
func FuzzTFRecord(f *testing.F) {
	f.Add(example(featureOf("a", 1, field(1, []byte("xyz"))), featureOf("l", 3, field(1, []byte{7}))), []byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 0)
	f.Add([]byte{}, bytes.Repeat([]byte{0x0a, 0x80}, 30), 3)
	f.Fuzz(func(t *testing.T, a, b []byte, cut int) {
		file := tfrecords(a, b)
		file = file[:max(0, min(len(file), len(file)-cut%50))]
		for _, set := range []Settings{{}, {Features: []string{"a", "b"}, LabelFeature: "l"}, {LabelFeature: "l"}} {
			listed(t, "tfrecord", set, memory{"a": file}, "a")
			listed(t, "tfrecord", set, memory{"a": a}, "a")
		}
	})
}

// megatronIndex returns an index of Megatron.
func megatronIndex(code byte, lengths []int32, positions []int64) []byte {
	b := append([]byte(megatronMagic), 1, 0, 0, 0, 0, 0, 0, 0, code)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(lengths)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(lengths)+1))
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	for _, n := range positions {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	for i := range len(lengths) + 1 {
		b = binary.LittleEndian.AppendUint64(b, uint64(i))
	}
	return b
}

func TestMegatron(t *testing.T) {
	good := megatronIndex(8, []int32{3, 0, 5}, []int64{0, 6, 6})
	for want, idx := range map[string][]byte{
		" =0/tokens:0+6 =0/tokens:6+0 =0/tokens:6+10": good,
		`its index "a.idx": it announces 3 sequences and 4 documents, but has 101 bytes: it is truncated: copy or write it again`:                      good[:len(good)-1],
		`its index "a.idx": it has 20 bytes, and an index of Megatron has at least 34`:                                                                 good[:20],
		`its index "a.idx": it is not an index of Megatron: it does not begin with MMIDIDX`:                                                            damaged(good, 0),
		`its index "a.idx": it has version 0, and lcache reads version 1`:                                                                              damaged(good, 9),
		`its index "a.idx": the code 9 of its tokens' type is unknown`:                                                                                 damaged(good, 17),
		`its index "a.idx": it announces 1000000000000 sequences and 4 documents, but has 102 bytes: it is truncated: copy or write it again`:          withCount(good, 1e12),
		`its index "a.idx": it announces 9223372036854775808 sequences and 4 documents, but has 102 bytes: it is truncated: copy or write it again`:    withCount(good, 1<<63),
		`its index "a.idx": row 0: its bytes are from 0 on, 18 in number, but the file has 16: the file is truncated, or its index is of another file`: megatronIndex(8, []int32{9}, []int64{0}),
		`its index "a.idx": sequence 0 has -9 tokens: it is damaged`:                                                                                   megatronIndex(8, []int32{-9}, []int64{0}),
		`its index "a.idx": row 0: its bytes are from 9223372036854775807 on, 2 in number, which no file has: its index is damaged`:                    megatronIndex(8, []int32{1}, []int64{math.MaxInt64}),
		`its index "a.idx": it is of the format before IndexedDataset (TNTIDX): write it again with Megatron-LM's tools/preprocess_data.py`:            append([]byte(megatronOld), make([]byte, 60)...),
	} {
		if got := listed(t, "megatron", Settings{}, memory{"a.bin": make([]byte, 16), "a.idx": idx}, "a.bin"); got != want {
			t.Errorf("%.40q:\n%s\nwant\n%s", idx, got, want)
		}
	}
	if got := listed(t, "megatron", Settings{}, memory{"a.bin": make([]byte, 16)}, "a.bin"); got != `its index "a.idx": no such file` {
		t.Error(got)
	}
}

func withCount(idx []byte, n uint64) []byte {
	idx = bytes.Clone(idx)
	binary.LittleEndian.PutUint64(idx[18:], n)
	return idx
}

func FuzzMegatron(f *testing.F) {
	f.Add(megatronIndex(8, []int32{3, 0, 5}, []int64{0, 6, 6}))
	f.Add(megatronIndex(5, []int32{math.MaxInt32}, []int64{-1}))
	f.Fuzz(func(t *testing.T, idx []byte) {
		listed(t, "megatron", Settings{}, memory{"a.bin": make([]byte, 1000), "a.idx": idx}, "a.bin")
	})
}

// npyFile returns a .npy file of version 1.
func npyFile(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint16([]byte(npyMagic+"\x01\x00"), uint16(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestNPY(t *testing.T) {
	const two = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
	at := len(npyFile(two, 0))
	for _, c := range []struct {
		file []byte
		set  Settings
		want string
	}{
		{npyFile(two, 24), Settings{}, fmt.Sprintf(" =0/data:%d+12 =0/data:%d+12", at, at+12)},
		{npyFile(two, 24), Settings{RecordBytes: 8}, fmt.Sprintf(" =0/data:%d+8 =0/data:%d+8 =0/data:%d+8", at, at+8, at+16)},
		{npyFile(two, 24), Settings{RecordBytes: 16}, fmt.Sprintf(" =0/data:%d+16", at)},
		{npyFile(two, 24), Settings{RecordBytes: 6}, "the record's size is 6 by --record-bytes, but a value has 4 bytes: give a multiple"},
		{npyFile(two, 23), Settings{}, "it is truncated: its header announces 2 rows of 12 bytes, but it has 23 bytes after it: copy or write it again"},
		{npyFile(two, 25), Settings{}, "it has 1 bytes after its array of 2 rows, and lcache reads one array of a file"},
		{npyFile(two, 24)[:30], Settings{}, "it is truncated in its header: copy or write it again"},
		{[]byte("PK\x03\x04xxxxxxxx"), Settings{}, "it is a zip file, such as a .npz: write its array with numpy.save"},
		{[]byte("nothing"), Settings{}, "it is not a .npy file: check the pattern"},
		{npyFile("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }", 24), Settings{}, "its header: its values are objects of Python, which are pickled: save numbers"},
		{npyFile("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24), Settings{}, "its header: its array is in Fortran order, so its rows are not contiguous: save numpy.ascontiguousarray(array)"},
		{npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4), Settings{}, "its header: its array has no dimension: save an array of samples"},
		{npyFile("{'descr': '<u2', 'fortran_order': False, 'shape': (12,), }", 24), Settings{}, "its array has one dimension, so a record would be one number of 2 bytes: give --record-bytes, or --dtype and --shape, the size of a window"},
		{npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 0), }", 24), Settings{}, "its array has 1000000000000 rows of 0 bytes: leave it out"},
		{npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 3), }", 24), Settings{}, "its header: its shape \"[9223372036854775807 3]\" is not possible"},
		{npyFile("{'descr': [('a', '<f4', (2,)), ('b', 'xx')]", 24), Settings{}, "its header: it is not a literal of Python: the file is damaged"},
		{append([]byte(npyMagic+"\x03\x00\xff\xff\xff\xff"), make([]byte, 100)...), Settings{}, "its header has 4294967295 bytes, at most 65524"},
	} {
		if got := listed(t, "npy", c.set, memory{"a": c.file}, "a"); got != c.want {
			t.Errorf("%q %+v:\n%s\nwant\n%s", c.file, c.set, got, c.want)
		}
	}
}

func TestBin(t *testing.T) {
	if got := listed(t, "bin", Settings{RecordBytes: 4}, memory{"a": make([]byte, 11)}, "a"); got != " =0/data:0+4 =0/data:4+4" {
		t.Error(got)
	}
	if got := listed(t, "bin", Settings{RecordBytes: 40}, memory{"a": make([]byte, 11)}, "a"); got != "it has 11 bytes, and a record 40: give another size of a record, or leave the file out" {
		t.Error(got)
	}
	if got := listed(t, "bin", Settings{}, memory{"a": nil}, "a"); got != "the size of a record is not known: give --record-bytes, or --dtype and --shape" {
		t.Error(got)
	}
}

func FuzzNPY(f *testing.F) {
	f.Add("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, int64(0))
	f.Add("{'descr': [('a', '<f4', (2,)), ('', '|V4'), ('c', [('d', '<M8[ns]')])], 'fortran_order': False, 'shape': (2,), }", 40, int64(20))
	f.Add("((((((((((((((((((((((((((((((((", 1, int64(1))
	f.Fuzz(func(t *testing.T, header string, data int, window int64) {
		if data < 0 || data > 1000 || len(header) > math.MaxUint16 || window < 0 {
			return
		}
		listed(t, "npy", Settings{RecordBytes: window}, memory{"a": npyFile(header, data)}, "a")
		listed(t, "npy", Settings{RecordBytes: window}, memory{"a": []byte(header)}, "a")
	})
}

func TestJSONL(t *testing.T) {
	long := `{"a":"` + strings.Repeat("y", 10_000) + `"}`
	for _, c := range []struct {
		file string
		set  Settings
		want string
	}{
		{"{\"a\":1}\n[2]\r\n\n  \n\"x\"", Settings{}, " =0/json:0+7 =0/json:8+3 =0/json:17+3"},
		{"\xef\xbb\xbf{}\n12\nnull\n", Settings{}, " =0/json:3+2 =0/json:6+2 =0/json:9+4"},
		{long + "\r\n" + long, Settings{}, " =0/json:0+10008 =0/json:10010+10008"},
		{`{"k":"né","l":-3,"x":{"l":9,"k":"}"}}` + "\n" + ` {"l":2 , "k" : 17} `, Settings{LabelField: "l", Key: "k"}, " né=-3/json:0+38 17=2/json:39+20"},
		{`{"l":1,"l":2}`, Settings{LabelField: "l"}, " =2/json:0+13"},
		{`{"\u006c":1}`, Settings{LabelField: "l"}, " =1/json:0+12"},
		{long, Settings{LabelField: "l"}, `line 1, at byte 0: it has no field "l": correct --label-field`},
		{`{"l":"cat"}`, Settings{LabelField: "l"}, `line 1, at byte 0: its field "l" is "\"cat\"", want an integer of 32 bits: correct --label-field, or give --labels`},
		{`{"l":2147483648}`, Settings{LabelField: "l"}, `line 1, at byte 0: its field "l" is "2147483648", want an integer of 32 bits: correct --label-field, or give --labels`},
		{`{"l":"cat"}`, Settings{LabelField: "l", NoLabels: true}, ` =0/json:0+11`},
		{"[1]\n", Settings{Key: "k"}, `line 1, at byte 0: it is not an object of JSON, whose fields --label-field and --key name`},
		{`{"k":[1]}`, Settings{Key: "k"}, `line 1, at byte 0: its field "k" is "[1]", want a text or an integer: correct --key`},
		{"{\n  \"a\": 1\n}\n", Settings{}, `line 1, at byte 0: it begins with { and does not end with }: the file is truncated, or its JSON has several lines (write one value a line, as jq -c does)`},
		{"{}\n{\"a\":\"trunc", Settings{}, `line 2, at byte 3: it begins with { and does not end with }: the file is truncated, or its JSON has several lines (write one value a line, as jq -c does)`},
		{"plain text\n", Settings{}, `line 1, at byte 0: it is not JSON: it begins with "plain text\n"`},
		{"\xff\xfe{\x00", Settings{}, `it is UTF-16: convert it to UTF-8`},
		{"\x28\xb5\x2f\xfdxxxx", Settings{}, `it is compressed with zstd, so its records have no positions: unpack it, or name it *.zst and give --stream`},
	} {
		if got := listed(t, "jsonl", c.set, memory{"a": []byte(c.file)}, "a"); got != c.want {
			t.Errorf("%.60q %+v:\n%s\nwant\n%s", c.file, c.set, got, c.want)
		}
	}
}

// FuzzJSONL: the fields of every valid line are those that encoding/json finds.
func FuzzJSONL(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"}"]},"l":7,"k":"x\"y"}`))
	f.Add([]byte("{}\r\n[]\n\"\"\n1e9"))
	f.Add([]byte(`{"l" : -0 , "\u006b":"\ud800"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		listed(t, "jsonl", Settings{}, memory{"a": text}, "a")
		listed(t, "jsonl", Settings{LabelField: "l", Key: "k"}, memory{"a": text}, "a")
		var want map[string]json.RawMessage
		if !utf8.Valid(text) || json.Unmarshal(text, &want) != nil || want == nil {
			return // a name that is not UTF-8 stays as it is
		}
		got := map[string][]byte{}
		if err := eachField(text, func(name string, value []byte) { got[name] = value }); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", text, got, want)
		}
		for name, w := range want {
			if !bytes.Equal(got[name], w) {
				t.Errorf("%q: %s is %q, want %q", text, name, got[name], w)
			}
		}
	})
}

func BenchmarkMegatron(b *testing.B) {
	const n = 1_000_000
	lengths, positions := make([]int32, n), make([]int64, n)
	for i := range lengths {
		lengths[i], positions[i] = 2, int64(4*i)
	}
	idx := megatronIndex(8, lengths, positions)
	for b.Loop() {
		t := NewTable(4 * n)
		if err := readMegatron(bytes.NewReader(idx), int64(len(idx)), t); err != nil || t.Len() != n {
			b.Fatal(err, t.Len())
		}
	}
}
