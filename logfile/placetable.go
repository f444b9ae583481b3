package logfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"lcache/internal/disk/durable"
	"lcache/internal/trust"

	"golang.org/x/sys/unix"
)

// The table of places is the file places. It has for each arena block the generation that was drawn just before the block was last given to a write.
//
//	 0       8         12    16         32
//	+-------+---------+-----+----------+------------------+
//	| magic | version | 0   | uuid     | generation       |
//	| 8     | u32 = 1 | u32 | 16 bytes | u64 × places     |
//	+-------+---------+-----+----------+------------------+
//
// Generations are little-endian. After the end of the file they are 0. A journal record of a place is void if its generation is
// smaller, because another block's bytes may be there. The journals can't show that after a kill -9: the other block's record is
// written after its bytes, and may have been deleted with its journal.
//
// The table is written before the place, and never synced: a write survives if only the process is killed. After a power cut the table may
// be older. That costs the same as a missing table: the checksums of samples reveal overwritten blocks.
const (
	placesName    = "places"
	placesMagic   = "LCACHEP\n"
	placesVersion = 1
	placesHeader  = 32
)

// placeTable is the table of places. Its methods are called by one goroutine at a time.
type placeTable struct {
	path   string
	format Format
	trace  durable.Trace
	f      *os.File // nil: there is none yet
}

func (t *placeTable) header() []byte {
	b := make([]byte, placesHeader)
	copy(b, placesMagic)
	binary.LittleEndian.PutUint32(b[8:], placesVersion)
	copy(b[16:], t.format.UUID[:])
	return b
}

// read returns the generations of all places. It also opens the file for writing, unless readOnly is set. It creates no file.
func (t *placeTable) read(readOnly bool) ([]uint64, error) {
	gens := make([]uint64, t.format.Places)
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	f, err := trust.Open(t.path, mode)
	if errors.Is(err, os.ErrNotExist) {
		return gens, nil
	}
	if err != nil {
		return gens, err
	}
	r, head := bufio.NewReader(f), make([]byte, placesHeader)
	if _, err = io.ReadFull(r, head); err != nil || string(head) != string(t.header()) {
		err = fmt.Errorf("%s is damaged, or of another cache or version: it is replaced", t.path)
		return gens, errors.Join(err, f.Close())
	}
	var b [8]byte
	for p := range gens {
		if _, err = io.ReadFull(r, b[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		} else if err != nil {
			return gens, errors.Join(err, f.Close())
		}
		gens[p] = binary.LittleEndian.Uint64(b[:])
	}
	if readOnly {
		return gens, f.Close()
	}
	t.f = f
	return gens, nil
}

// note writes a generation for each of some places.
func (t *placeTable) note(places []uint32, gen uint64) error {
	if t.f == nil {
		if err := t.begin(); err != nil {
			return err
		}
	}
	slices.Sort(places)
	for len(places) > 0 { // one write for each run of adjacent places
		n := 1
		for n < len(places) && places[n] == places[0]+uint32(n) {
			n++
		}
		b := make([]byte, 0, 8*n)
		for range n {
			b = binary.LittleEndian.AppendUint64(b, gen)
		}
		off := placesHeader + 8*int64(places[0])
		if err := t.trace.Report(durable.Change{Step: durable.StepWrite, Path: t.path, Off: off, Data: b}); err != nil {
			return fmt.Errorf("write %s: %w", t.path, err)
		}
		if _, err := t.f.WriteAt(b, off); err != nil {
			return err
		}
		places = places[n:]
	}
	return nil
}

// begin replaces any old file by an empty table.
func (t *placeTable) begin() error {
	v, err := t.trace.Begin(t.path)
	if err != nil {
		return fmt.Errorf("begin the table of places: %w", err)
	}
	// Reserve the space now, so that the table fits even if other programs fill the disk later. It is not needed, so errors are ignored.
	_ = durable.Fallocate(v.File, unix.FALLOC_FL_KEEP_SIZE, placesHeader+8*int64(t.format.Places))
	if _, err = v.Write(t.header()); err == nil {
		err = v.Commit()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("begin the table of places: %w", err), v.Discard())
	}
	t.f = v.File
	return nil
}

func (t *placeTable) close() error {
	if t.f == nil {
		return nil
	}
	f := t.f
	t.f = nil
	return f.Close()
}
