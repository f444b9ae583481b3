package records

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// megatron:PREFIX has the sequences of tokens in PREFIX.bin, whose positions are in PREFIX.idx, as Megatron-LM's IndexedDataset writes them:
//
//	"MMIDIDX\x00\x00"
//	u64         version, 1
//	u8          code of the tokens' type
//	u64         number of sequences s
//	u64         number of entries of the document index d
//	i32 × s     tokens of each sequence
//	i64 × s     position of each sequence in PREFIX.bin, in bytes
//	i64 × d     first sequence of each document, and s
//	i8 × s      mode of each sequence; only in multimodal datasets
//
// All numbers are little-endian. A sample is a sequence. Documents are not read: a reader that needs them has the index.

const (
	megatronMagic   = "MMIDIDX\x00\x00"
	megatronHead    = len(megatronMagic) + 8 + 1 + 8 + 8
	megatronOld     = "TNTIDX\x00\x00" // of fairseq's first format
	megatronPart    = "tokens"
	megatronBin     = ".bin"
	megatronIdx     = ".idx"
	megatronVersion = 1
)

// megatronTypes are the bytes of a token, by the type's code.
var megatronTypes = map[byte]int64{1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}

type megatron struct{ files Files }

func newMegatron(Settings) (Format, error) { return &megatron{}, nil }

// Shards implements [Format]. PREFIX may also be the name of one of the two files.
func (m *megatron) Shards(_ context.Context, files Files, pattern string) ([]string, error) {
	m.files = files
	if pattern == Listed {
		names, err := files.Expand(pattern)
		for i, name := range names {
			names[i] = strings.TrimSuffix(strings.TrimSuffix(name, megatronIdx), megatronBin) + megatronBin
		}
		return names, err
	}
	if end := pattern[max(0, len(pattern)-len(megatronBin)):]; end == megatronBin || end == megatronIdx {
		pattern = strings.TrimSuffix(pattern, end)
	}
	return files.Expand(pattern + megatronBin)
}

// Index implements [Format].
func (m *megatron) Index(ctx context.Context, files Files, name string, _ Object, t *Table) error {
	idx := strings.TrimSuffix(name, megatronBin) + megatronIdx
	in, size, err := files.Stream(ctx, idx)
	if err != nil {
		return fmt.Errorf("its index %s: %w", clip(idx), err)
	}
	defer in.Close()
	if err := readMegatron(in, size, t); err != nil {
		return fmt.Errorf("its index %s: %w", clip(idx), err)
	}
	return nil
}

// IndexStream is Index, because the index is in another file.
func (m *megatron) IndexStream(ctx context.Context, name string, _ io.Reader, t *Table) error {
	return m.Index(ctx, m.files, name, nil, t)
}

// readMegatron reads an index of size bytes.
func readMegatron(in io.Reader, size int64, t *Table) error {
	from := bufio.NewReaderSize(in, 1<<20)
	head := make([]byte, megatronHead)
	if n, err := io.ReadFull(from, head); errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return fmt.Errorf("it has %d bytes, and an index of Megatron has at least %d", n, megatronHead)
	} else if err != nil {
		return err
	}
	if strings.HasPrefix(string(head), megatronOld) {
		return errors.New("it is of the format before IndexedDataset (TNTIDX): write it again with Megatron-LM's tools/preprocess_data.py")
	}
	head, found := bytes.CutPrefix(head, []byte(megatronMagic))
	if !found {
		return errors.New("it is not an index of Megatron: it does not begin with MMIDIDX")
	}
	version, code := binary.LittleEndian.Uint64(head), head[8]
	sequences, documents := binary.LittleEndian.Uint64(head[9:]), binary.LittleEndian.Uint64(head[17:])
	if version != megatronVersion {
		return fmt.Errorf("it has version %d, and lcache reads version %d", version, megatronVersion)
	}
	width, known := megatronTypes[code]
	if !known {
		return fmt.Errorf("the code %d of its tokens' type is unknown", code)
	}
	rest := uint64(size) - uint64(megatronHead)
	if size < int64(megatronHead) || sequences > rest/12 || documents > (rest-sequences*12)/8 {
		return fmt.Errorf("it announces %d sequences and %d documents, but has %d bytes: it is truncated: copy or write it again", sequences, documents, size)
	}
	return addSequences(from, int(sequences), width, t)
}

// addSequences adds n sequences. Their lengths come first, and then their positions.
func addSequences(from *bufio.Reader, n int, width int64, t *Table) error {
	if _, err := t.Part(megatronPart); err != nil {
		return err
	}
	t.Grow(n) // the index has that many
	lengths := make([]uint32, n)
	for i := range lengths {
		b, err := nextBytes(from, 4)
		if err != nil {
			return err
		}
		if lengths[i] = binary.LittleEndian.Uint32(b); lengths[i] > math.MaxInt32 {
			return fmt.Errorf("sequence %d has %d tokens: it is damaged", i, int32(lengths[i]))
		}
	}
	for _, tokens := range lengths {
		b, err := nextBytes(from, 8)
		if err != nil {
			return err
		}
		off := int64(binary.LittleEndian.Uint64(b))
		if err := t.Add("", 0, Cell{Off: off, Size: int64(tokens) * width}); err != nil {
			return err
		}
	}
	return nil
}

// nextBytes returns the next n bytes, which are valid until the next call.
func nextBytes(from *bufio.Reader, n int) ([]byte, error) {
	b, err := from.Peek(n)
	if err == io.EOF {
		return nil, errors.New("it is truncated: copy or write it again")
	} else if err != nil {
		return nil, err
	}
	_, err = from.Discard(n)
	return b, err
}
