package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"lcache/internal/disk/durable"
	"lcache/internal/disk/offheap"
)

// A learnt file has one fact about each sample, which is learnt when the sample is read. All learnt files have this format, little-endian;
// n and the fingerprint are the manifest's.
//
//	┌──────────────────────────┬─────────────┬──────────────┐
//	│ header, padded to 4096 B │ a column, n │ check u32[n] │ (inodes have no checks)
//	└──────────────────────────┴─────────────┴──────────────┘
//
//	 0  magic        8 bytes: which file it is
//	 8  version      u32 = 1
//	12  zero         u32
//	16  samples      u64 = n
//	24  fingerprint  16 bytes, of the manifest
//	40  sum          xxh3-64 of the 40 bytes before
const (
	learntVersion = 1
	learntHeader  = 48
	learntData    = 4096 // the columns begin at a page, so they are aligned and a torn header page harms no entry
)

// learntFile is a kind of learnt file.
type learntFile struct {
	magic string
	name  string        // in errors
	entry int           // bytes of an entry, its check, if any, included
	trace durable.Trace // for tests; it receives the mapping's writes at each Sync
}

// learntMap is an open learnt file.
type learntMap struct {
	kind   *learntFile
	path   string
	mapped []byte
	broken *atomic.Pointer[error]
}

// open maps the file, and creates it if there is none. With private it neither creates nor changes the file: new entries stay in memory, and
// a missing file is the error fs.ErrNotExist.
func (k *learntFile) open(path string, fp Fingerprint, n int, private bool) (m learntMap, err error) {
	mode, mapping := os.O_RDWR, syscall.MAP_SHARED
	if private {
		mode, mapping = os.O_RDONLY, syscall.MAP_PRIVATE
	}
	f, size, err := openRegular(path, mode)
	if errors.Is(err, fs.ErrNotExist) && !private {
		if err := k.trace.Replace(path, func(v *durable.Version) error { return k.create(v, fp, n) }); err != nil {
			return m, fmt.Errorf("create %s %s: %w", k.name, path, err)
		}
		f, size, err = openRegular(path, os.O_RDWR)
	}
	if err != nil {
		return m, fmt.Errorf("open %s: %w", k.name, err)
	}
	defer f.Close() // the mapping stays
	var head [learntHeader]byte
	if _, err := f.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return m, fmt.Errorf("open %s %s: %w: read header of %d bytes from %d", k.name, path, ErrCorrupt, learntHeader, size)
	} else if err != nil {
		return m, fmt.Errorf("open %s %s: read header: %w", k.name, path, err)
	}
	if err := k.checkHeader(head, fp, n, size); err != nil {
		return m, fmt.Errorf("open %s %s: %w", k.name, path, err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, mapping)
	if err != nil {
		return m, fmt.Errorf("open %s %s: map: %w", k.name, path, err)
	}
	offheap.Count(len(b))
	return learntMap{kind: k, path: path, mapped: b, broken: new(atomic.Pointer[error])}, nil
}

// blank returns a learntMap without a file, in which no entry is known.
func (k *learntFile) blank(n int) (m learntMap, err error) {
	if n < 0 || uint64(n) > MaxSamples {
		return m, fmt.Errorf("%w: %d samples", ErrEntry, n)
	}
	b, err := syscall.Mmap(-1, 0, int(k.size(n)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return m, fmt.Errorf("%s of %d samples: map: %w", k.name, n, err)
	}
	offheap.Count(len(b))
	return learntMap{kind: k, mapped: b, broken: new(atomic.Pointer[error])}, nil
}

func (k *learntFile) size(n int) int64 { return learntData + int64(k.entry)*int64(n) }

func (k *learntFile) encodeHeader(fp Fingerprint, n int) []byte {
	b := append(make([]byte, 0, learntHeader), k.magic...)
	b = binary.LittleEndian.AppendUint64(b, learntVersion) // and the zero behind it
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = append(b, fp[:]...)
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

func (k *learntFile) checkHeader(b [learntHeader]byte, fp Fingerprint, n int, size int64) error {
	if string(b[:8]) != k.magic {
		return fmt.Errorf("%w: not a %s file of lcache", ErrCorrupt, k.name)
	}
	// Checked before the version, and so at the same offset in every later version: a damaged version is not taken for another one.
	if xxh3.Hash(b[:learntHeader-8]) != binary.LittleEndian.Uint64(b[learntHeader-8:]) {
		return fmt.Errorf("%w: header does not match its checksum", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != learntVersion {
		return fmt.Errorf("%w %d, this lcache reads version %d: use the lcache that wrote it, or remove the file (every sample is then read again)", ErrVersion, v, learntVersion)
	}
	if binary.LittleEndian.Uint32(b[12:]) != 0 {
		return fmt.Errorf("%w: header has bytes that must be zero", ErrCorrupt)
	}
	if got := Fingerprint(b[24:40]); got != fp {
		return fmt.Errorf("%w: they are of %s, the manifest is %s", ErrOtherManifest, got.Short(), fp.Short())
	}
	if m := binary.LittleEndian.Uint64(b[16:]); m != uint64(n) || size != k.size(n) {
		return fmt.Errorf("%w: %d samples in %d bytes, want %d in %d", ErrCorrupt, m, size, n, k.size(n))
	}
	return nil
}

// create reserves the whole file, so that no later store finds the disk full.
func (k *learntFile) create(v *durable.Version, fp Fingerprint, n int) error {
	if n < 0 || uint64(n) > MaxSamples {
		return fmt.Errorf("%w: %d samples", ErrEntry, n)
	}
	err := v.Reserve(k.size(n))
	if err != nil {
		return fmt.Errorf("%d bytes for each of %d samples: %w", k.entry, n, err)
	}
	_, err = v.WriteAt(k.encodeHeader(fp, n), 0)
	return err
}

// guard calls f, which accesses the mapping, and reports whether f finished.
func (m *learntMap) guard(f func()) (whole bool) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if !whole { // only then, because recover costs something in every call
			m.faulted(recover())
		}
	}()
	f()
	return true
}

// faulted records a fault of the mapping. It panics again with any other value.
func (m *learntMap) faulted(r any) {
	if r == nil {
		return
	}
	fault, ok := r.(interface{ Addr() uintptr })
	base := uintptr(unsafe.Pointer(unsafe.SliceData(m.mapped)))
	if !ok || fault.Addr() < base || fault.Addr() >= base+uintptr(len(m.mapped)) {
		panic(r)
	}
	err := fmt.Errorf("%s %s: a page can't be read, its samples count as unknown: the disk fails, or the file was cut short (run lcache ingest again)", m.kind.name, m.path)
	m.broken.CompareAndSwap(nil, &err)
}

// Broken returns nil as long as every accessed page could be read and written.
func (m *learntMap) Broken() error {
	if err := m.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Sync waits until all earlier entries are on disk. A failed sync must not be retried: its entries may be lost, and are unknown after a
// restart.
func (m *learntMap) Sync() error {
	err := m.kind.trace.Report(durable.Change{Step: durable.StepWrite, Path: m.path, Data: m.mapped})
	if err == nil {
		err = unix.Msync(m.mapped, unix.MS_SYNC)
	}
	if err == nil {
		err = m.kind.trace.Report(durable.Change{Step: durable.StepSynced, Path: m.path})
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", m.kind.name, err)
	}
	return nil
}

func (m *learntMap) close() error {
	err := m.Sync()
	if e := syscall.Munmap(m.mapped); e == nil {
		offheap.Count(-len(m.mapped))
	} else if err == nil {
		err = fmt.Errorf("unmap %s: %w", m.kind.name, e)
	}
	m.mapped = nil
	return err
}
