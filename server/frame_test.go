package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lcache/engine"
	"lcache/internal/errcode"
	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/sample"
)

// goldens are the frames of testdata/frames.txt, by name.
func goldens(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/frames.txt")
	if err != nil {
		t.Fatal(err)
	}
	frames := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		frames[name] = b
	}
	return frames
}

func read(t testing.TB, b []byte) frame {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(b))
	f, err := readFrame(r, maxFrame)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Fatal("bytes left over after the frame")
	}
	return f
}

func TestGoldenRequests(t *testing.T) {
	position := deliver.Position{Epoch: 3, Rank: 1, Batch: 17}
	tests := map[string]struct {
		kind    uint8
		request uint32
		decode  func([]byte) (any, error)
		want    any
	}{
		"chunk":       {typeChunk, 2, func(b []byte) (any, error) { return decodeChunk(b) }, chunkRequest{3, 1, 17}},
		"get":         {typeGet, 3, func(b []byte) (any, error) { return decodeGet(b) }, getRequest{&position, []uint32{5, 3, 9}}},
		"get-nowhere": {typeGet, 4, func(b []byte) (any, error) { return decodeGet(b) }, getRequest{nil, []uint32{5}}},
		"release":     {typeRelease, 0, func(b []byte) (any, error) { return decodeRelease(b) }, []uint64{1, 1<<63 - 1}},
		"push": {typePush, 5, func(b []byte) (any, error) { return decodePush(b) },
			pushRequest{epoch: 2, rank: 1, first: 0, more: true, sizes: columnOf(2, 0, 1), indices: columnOf(7, 8, 9)}},
		"lend-chunk": {typeLend, 9, func(b []byte) (any, error) { return decodeLend(b) }, lendRequest{kind: typeChunk, from: 64, chunk: chunkRequest{3, 1, 17}}},
		"lend-get":   {typeLend, 10, func(b []byte) (any, error) { return decodeLend(b) }, lendRequest{kind: typeGet, from: 1, get: getRequest{&position, []uint32{5, 3}}}},
		"copied":     {typeCopied, 11, func(b []byte) (any, error) { return decodeCopied(b) }, uint64(1<<63 + 7)},
		"names":      {typeNames, 7, func(b []byte) (any, error) { return decodeList(b, "NAMES") }, []uint32{5, 3}},
		"parts":      {typeParts, 8, func(b []byte) (any, error) { return decodeList(b, "PARTS") }, []uint32{5, 3}},
		"labels":     {typeLabels, 12, func(b []byte) (any, error) { return decodeLabels(b) }, labelsRequest{2, 5}},
		"job":        {typeJob, 13, func(b []byte) (any, error) { return decodeJob(b) }, jobRequest{"train"}},
		"chunk-job":  {typeChunk, 14, func(b []byte) (any, error) { return decodeChunk(b) }, chunkRequest{3, 1, 17}},
		"observe": {typeObserve, 0, func(b []byte) (any, error) { return decodeObserve(b) },
			score.Observation{Kind: score.Losses, Rank: 1, Epoch: 3, Batch: 17, Index: []uint32{5, 9}, Loss: []float32{0.5, 2.25}, Node: sample.None}},
		"observe-counts": {typeObserve, 0, func(b []byte) (any, error) { return decodeObserve(b) },
			score.Observation{Kind: score.Counts, Rank: 1, Epoch: 3, Batch: 17, Index: []uint32{5, 9}, Same: []uint16{7, 0}, Other: []uint16{1, 65535}, Node: 9, Neighbours: []uint32{5}}},
		"reevaluate": {typeReevaluate, 15, func(b []byte) (any, error) { return decodePage(b, "REEVALUATE") }, pageRequest{nowhere, 1, 64, 256}},
		"order":      {typeOrder, 16, func(b []byte) (any, error) { return decodePage(b, "ORDER") }, pageRequest{3, 1, 64, 256}},
		"weights":    {typeWeights, 17, func(b []byte) (any, error) { return decodeWeights(b) }, weightsRequest{3, []uint32{5, 9}}},
		"cancel":     {typeCancel, 0, func(b []byte) (any, error) { return decodeList(b, "CANCEL") }, []uint32{2}},
		"report":     {typeReport, 0, func(b []byte) (any, error) { return decodeReport(b) }, engine.Report{Epoch: 3, Rank: 1, LoopWait: 0.5, Loop: 2.25, Decode: 1, Workers: 4}},
	}
	frames := goldens(t)
	for name, tt := range tests {
		f := read(t, frames[name])
		if f.kind != tt.kind || f.request != tt.request {
			t.Errorf("%s: type %d request %d, want %d and %d", name, f.kind, f.request, tt.kind, tt.request)
		}
		if want := map[string]int{"chunk-job": 258, "observe-counts": 258}[name]; f.job != want {
			t.Errorf("%s: job %d, want %d", name, f.job, want)
		}
		got, err := tt.decode(f.body)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, tt.want)
		}
		// One byte less or more is never believed.
		for _, wrong := range [][]byte{f.body[:len(f.body)-1], append(bytes.Clone(f.body), 0), nil} {
			var rule *protocolError
			if got, err := tt.decode(wrong); !errors.As(err, &rule) {
				t.Errorf("%s with %d of %d bytes: got %+v, %v, want a protocolError", name, len(wrong), len(f.body), got, err)
			}
		}
	}
}

func TestGoldenAnswers(t *testing.T) {
	batch := &deliver.Batch{Lease: 1<<63 + 7, Pinned: 3, Offsets: []uint64{4096, 1 << 32}, Lengths: []uint32{3, 0}, Indices: []uint32{5, 9}, Labels: []int32{-1, 2}}
	served := *batch
	served.Requested = []uint32{5, 8}
	same := *batch
	same.Requested = batch.Indices
	names, err := appendNames(nil, 7, []string{"a", "\xff/b"})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := appendParts(nil, 8, [][]sample.Part{{{Ext: "jpg", Size: 3}, {Ext: "x", Size: 1}}, nil})
	if err != nil {
		t.Fatal(err)
	}
	object, err := appendJSON(nil, typeJSON, 1, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{
		"json":  object,
		"batch": appendBatch(nil, 2, batch, false),
		"loan":  appendLoan(nil, 9, &deliver.LentPart{Batch: batch, Next: 66, Total: 256}, true),

		"batch-parts": appendBatchParts(appendBatch(nil, 2, batch, false), 0, [][]sample.Part{{{Ext: "jpg", Size: 2}, {Ext: "x", Size: 1}}, nil}),
		"served":      appendBatch(nil, 2, &served, true),
		"served-loan": appendLoan(nil, 9, &deliver.LentPart{Batch: &served, Next: 66, Total: 256}, true),
		"end":         appendEmpty(nil, typeEnd, 2),
		"names-are":   names,
		"parts-are":   parts,
		"labels-are":  appendLabels(nil, 12, []int32{-1, 2}),

		"indices-are": appendIndices(nil, 16, []uint32{5, 9}, 100),
		"weights-are": appendWeights(nil, 17, []float32{0.5, 1.5}),
		"ok":          appendEmpty(nil, typeOK, 5),
		"error":       appendFailure(nil, 2, failure{Kind: "sample", Message: "gone", Sample: "a/b.jpg", Reason: "not_found", Code: errcode.SampleNotFound}),
	}
	want := goldens(t)
	for name, b := range map[string][]byte{"a client that did not ask": appendBatch(nil, 2, &served, false), "nothing is served in place of others": appendBatch(nil, 2, &same, true)} {
		if !bytes.Equal(b, want["batch"]) {
			t.Errorf("%s: %x, want BATCH", name, b)
		}
	}
	for name, b := range got {
		if !bytes.Equal(b, want[name]) {
			t.Errorf("%s:\n got %x\nwant %x", name, b, want[name])
		}
	}
}

func TestDecodeReport(t *testing.T) {
	tests := []struct {
		body string
		want *engine.Report // nil: refused
	}{
		{`{}`, &engine.Report{Epoch: -1}},
		{`{"decode_seconds": 0.25, "later": [1]}`, &engine.Report{Epoch: -1, Decode: 0.25}},
		{`{"epoch": 0, "rank": 7}`, &engine.Report{Rank: 7}},
		{`{"epoch": 2, "first": 3, "had": 4294967295}`, &engine.Report{Epoch: 2, First: 3, Had: 4294967295}},
		{`{"epoch": 2, "had": -1}`, nil},
		{`{"epoch": -1}`, nil},
		{`{"epoch": 0.5}`, nil},
		{`{"rank": 4294967296}`, nil},
		{`{"loop_seconds": -0.1}`, nil},
		{`{"loop_wait_seconds": 1e300}`, nil},
		{`{"decode_seconds": "1"}`, nil},
		{`{"workers": 65536}`, nil},
		{`[]`, nil},
		{``, nil},
	}
	for _, tt := range tests {
		got, err := decodeReport([]byte(tt.body))
		var rule *protocolError
		switch {
		case tt.want == nil && !errors.As(err, &rule):
			t.Errorf("%s: got %+v, %v, want a protocolError", tt.body, got, err)
		case tt.want != nil && (err != nil || got != *tt.want):
			t.Errorf("%s: got %+v, %v, want %+v", tt.body, got, err, *tt.want)
		}
	}
}

func TestReadFrameRefuses(t *testing.T) {
	long := binary.LittleEndian.AppendUint32(nil, maxFrame+1)
	tests := []struct {
		name, head string
		want       string
	}{
		{"length 0", "00000000 01 02 0000 01000000", "length 0"},
		{"length 7", "07000000 01 02 0000 01000000", "length 7"},
		{"over the cap", hex.EncodeToString(long) + "01 02 0000 01000000", "length 16777217"},
		{"4 GiB", "ffffffff 01 02 0000 01000000", "length 4294967295"},
		{"version 2", "08000000 02 02 0000 01000000", "server speaks protocol 1, client 2"},
		{"http", hex.EncodeToString([]byte("GET / HTTP/1.1\r\n")), "length"},
	}
	for _, tt := range tests {
		b, err := hex.DecodeString(strings.ReplaceAll(tt.head, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		_, err = readFrame(bufio.NewReader(bytes.NewReader(b)), maxFrame)
		var rule *protocolError
		if !errors.As(err, &rule) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want a protocolError with %q", tt.name, err, tt.want)
		}
	}
}

func TestReadFrameCutOff(t *testing.T) {
	whole := goldens(t)["push"]
	for n := range whole {
		_, err := readFrame(bufio.NewReader(bytes.NewReader(whole[:n])), maxFrame)
		if want := io.ErrUnexpectedEOF; n == 0 && err != io.EOF || n > 0 && err != want {
			t.Errorf("%d of %d bytes: got %v", n, len(whole), err)
		}
	}
}

// What a length announces costs nothing before it comes.
func TestReadFrameAllocatesReceivedBytes(t *testing.T) {
	head := appendEmpty(nil, typeGet, 1)
	binary.LittleEndian.PutUint32(head, maxFrame)
	grown := testing.AllocsPerRun(10, func() {
		readFrame(bufio.NewReaderSize(bytes.NewReader(head), 16), maxFrame)
	})
	f, err := readFrame(bufio.NewReader(bytes.NewReader(head)), maxFrame)
	if err != io.ErrUnexpectedEOF || cap(f.body) > 2*readStep || grown > 10 {
		t.Errorf("got %v, %d bytes reserved, %.0f allocations", err, cap(f.body), grown)
	}
}

func TestLargestBatchFitsAFrame(t *testing.T) {
	columns := make([]uint32, maxBatch)
	b := appendBatch(nil, 1, &deliver.Batch{Offsets: make([]uint64, maxBatch), Lengths: columns, Indices: columns, Labels: make([]int32, maxBatch)}, true)
	if n := len(b) - 4; n > maxFrame || n+20 <= maxFrame {
		t.Errorf("a batch of %d samples has %d bytes, the cap is %d", maxBatch, n, maxFrame)
	}
}

func TestAppendNamesFillsTheFrame(t *testing.T) {
	long := strings.Repeat("n", 64<<10)
	names := make([]string, 300)
	for i := range names {
		names[i] = long
	}
	b, err := appendNames(nil, 1, names)
	if err != nil || len(b)-4 > maxFrame {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if n := binary.LittleEndian.Uint32(b[headerBytes:]); n != 255 {
		t.Errorf("%d names of 64 KiB, want 255", n)
	}
	if _, err := appendNames(nil, 1, []string{strings.Repeat("n", maxFrame)}); err == nil {
		t.Error("a name larger than a frame was accepted")
	}
	var many [][]sample.Part
	for i := range 300 {
		many = append(many, []sample.Part{{Ext: strings.Repeat("e", 64<<10-4) + strconv.Itoa(i%280+1000), Size: 1}, {Ext: "", Size: 2}})
	}
	if b, err = appendParts(nil, 1, many); err != nil || len(b)-4 > maxFrame || binary.LittleEndian.Uint32(b[headerBytes:]) < 200 {
		t.Errorf("parts of samples with long extensions: %d in %d bytes, %v", binary.LittleEndian.Uint32(b[headerBytes:]), len(b), err)
	}
	if _, err := appendParts(nil, 1, [][]sample.Part{make([]sample.Part, maxFrame/8)}); err == nil {
		t.Error("a sample of more parts than fit a frame was taken")
	}
	// Behind a batch are the parts of all its samples, or of none.
	before := append(appendEmpty(nil, typeOK, 1), appendBatch(nil, 2, &deliver.Batch{Lease: 1}, false)...)
	at := len(appendEmpty(nil, typeOK, 1))
	for n, want := range map[int]bool{maxFrame/8 - 8: true, maxFrame/8 - 2: false} {
		b := appendBatchParts(bytes.Clone(before), at, [][]sample.Part{make([]sample.Part, n)})
		length := int(binary.LittleEndian.Uint32(b[at:]))
		if got := len(b) > len(before); got != want || len(b)-at-4 != length || length > maxFrame {
			t.Errorf("%d parts: %d bytes in all, %d before the parts; the frame's length is %d", n, len(b), len(before), length)
		}
	}
	if b, err := appendNames(nil, 1, nil); err != nil || len(b) != headerBytes+4 {
		t.Errorf("no names: %x, %v", b, err)
	}
}

// An accepted request encodes to the bytes that it was decoded from, so decoding neither drops nor adds anything.
func FuzzDecode(f *testing.F) {
	for _, b := range goldens(f) {
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bufio.NewReader(bytes.NewReader(b)), maxFrame)
		if err != nil {
			return
		}
		again := []byte(nil)
		u32 := func(v ...uint32) { again = appendColumn(again, v) }
		switch got.kind {
		case typeChunk:
			var q chunkRequest
			if q, err = decodeChunk(got.body); err == nil {
				u32(uint32(q.epoch), uint32(q.rank), uint32(q.batch))
			}
		case typeGet:
			var q getRequest
			if q, err = decodeGet(got.body); err == nil {
				at := &deliver.Position{Epoch: nowhere, Rank: nowhere, Batch: nowhere}
				if q.at != nil {
					at = q.at
				}
				u32(uint32(at.Epoch), uint32(at.Rank), uint32(at.Batch), uint32(len(q.indices)))
				u32(q.indices...)
			}
		case typeRelease:
			var leases []uint64
			if leases, err = decodeRelease(got.body); err == nil {
				u32(uint32(len(leases)))
				for _, l := range leases {
					again = binary.LittleEndian.AppendUint64(again, l)
				}
			}
		case typeLend:
			var q lendRequest
			if q, err = decodeLend(got.body); err == nil {
				u32(uint32(q.kind), uint32(q.from))
				if q.kind == typeChunk {
					u32(uint32(q.chunk.epoch), uint32(q.chunk.rank), uint32(q.chunk.batch))
					break
				}
				at := &deliver.Position{Epoch: nowhere, Rank: nowhere, Batch: nowhere}
				if q.get.at != nil {
					at = q.get.at
				}
				u32(uint32(at.Epoch), uint32(at.Rank), uint32(at.Batch), uint32(len(q.get.indices)))
				u32(q.get.indices...)
			}
		case typeCopied:
			var loan uint64
			if loan, err = decodeCopied(got.body); err == nil {
				again = binary.LittleEndian.AppendUint64(again, loan)
			}
		case typeLabels:
			var q labelsRequest
			if q, err = decodeLabels(got.body); err == nil {
				u32(q.first, q.count)
			}
		case typeObserve:
			var o score.Observation
			if o, err = decodeObserve(got.body); err == nil {
				if o.Index == nil {
					return // a number of samples that is refused later
				}
				again = observation(o)
			}
		case typeOrder, typeReevaluate:
			var q pageRequest
			if q, err = decodePage(got.body, "it"); err == nil {
				u32(q.epoch, q.rank, q.first, q.count)
			}
		case typeWeights:
			var q weightsRequest
			if q, err = decodeWeights(got.body); err == nil {
				u32(q.epoch, uint32(len(q.indices)))
				u32(q.indices...)
			}
		case typeNames, typeCancel, typeParts:
			var list []uint32
			if list, err = decodeList(got.body, "it"); err == nil {
				u32(uint32(len(list)))
				u32(list...)
			}
		case typePush:
			var q pushRequest
			if q, err = decodePush(got.body); err == nil {
				more := uint32(0)
				if q.more {
					more = 1
				}
				u32(uint32(q.epoch), uint32(q.rank), uint32(q.first), more, uint32(q.sizes.len()))
				again = append(append(again, q.sizes...), q.indices...)
			}
		default:
			return
		}
		if err == nil && !bytes.Equal(again, got.body) {
			t.Errorf("type %d: %x was taken as %x", got.kind, got.body, again)
		}
	})
}

// TestPushStaysInItsFrame: a piece of an order takes no memory of its own before there is room for it, whatever its batches are.
func TestPushStaysInItsFrame(t *testing.T) {
	for name, body := range map[string][]byte{
		"no batch has a sample":   append(columnOf(3, 0, 0, 0, 1_000_000), make([]byte, 4_000_000)...),
		"a batch for each sample": append(append(columnOf(3, 0, 0, 0, 500_000), columnOf(slices.Repeat([]uint32{1}, 500_000)...)...), make([]byte, 2_000_000)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		q, err := decodePush(body)
		runtime.ReadMemStats(&after)
		if err != nil || after.TotalAlloc-before.TotalAlloc > 64<<10 {
			t.Errorf("%s: %v, %d bytes are allocated", name, err, after.TotalAlloc-before.TotalAlloc)
		}
		if want := int64(len(body) - 20); q.bytes() != want {
			t.Errorf("%s: counts %d bytes, want %d", name, q.bytes(), want)
		}
	}
}
