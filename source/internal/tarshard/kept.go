package tarshard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/durable"
	"lcache/internal/trust"
)

// The file of a Kept is a sequence of records, little-endian, one for each shard, in the order of indexing:
//
//	 0  magic    u64
//	 8  length   u64, of the whole record
//	16  size     u64, of the shard
//	24  version  u64, of the shard
//	32  members  u32
//	36  name     u32, its length
//	40  name
//	    rows     for each member: offset u64, size u64, kind u8, length of the text u8, 0 u16, length of the name u32, name, text
//	    sum      xxh3-64 of everything before it
//
// A later record of a shard replaces an earlier one. Bytes after the last valid record are cut off. The file may be
// lost at any time: then the headers are read again.
const (
	recordMagic = 0x31_78_64_6e_69_72_61_74 // "tarindx1"
	recordHead  = 40
	recordRow   = 24
	recordSum   = 8
)

// A Kept stores the members of shards in a file.
type Kept struct {
	path string

	mu      sync.Mutex // guards the fields that follow
	file    *os.File
	end     int64 // of the last valid record
	records map[string]record
	used    map[string]bool // records that were requested or added since the file was opened
	dead    int64           // bytes of replaced records
}

// record is the location of a shard's members.
type record struct {
	off, length   int64
	size, version uint64
}

// OpenKept opens the file at path, or creates it.
func OpenKept(path string) (*Kept, error) {
	f, err := trust.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("open the index of shards: %w", err)
	}
	k := &Kept{path: path, file: f, records: map[string]record{}, used: map[string]bool{}}
	if err := k.scan(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the index of shards %s: %w", path, err), f.Close())
	}
	return k, nil
}

// scan finds the records.
func (k *Kept) scan() error {
	info, err := k.file.Stat()
	if err != nil {
		return err
	}
	var head [recordHead]byte
	for {
		if _, err := k.file.ReadAt(head[:], k.end); err != nil {
			return noEOF(err)
		}
		length := binary.LittleEndian.Uint64(head[8:])
		if binary.LittleEndian.Uint64(head[:]) != recordMagic || length < recordHead+recordSum || length > uint64(info.Size()-k.end) {
			return nil
		}
		b := make([]byte, length)
		if _, err := k.file.ReadAt(b, k.end); err != nil {
			return noEOF(err)
		}
		name, _, err := decode(b)
		if err != nil {
			return nil
		}
		k.note(name, record{k.end, int64(length), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])})
		k.end += int64(length)
	}
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (k *Kept) note(name string, r record) {
	k.dead += k.records[name].length
	k.records[name] = r
}

// Get returns the members of a shard of this size and version. ok is false if they are not known.
func (k *Kept) Get(name string, size int64, version uint64) (members []Member, ok bool) {
	k.mu.Lock()
	r, known := k.records[name]
	k.used[name] = true
	file := k.file
	k.mu.Unlock()
	if !known || r.size != uint64(size) || r.version != version {
		return nil, false
	}
	b := make([]byte, r.length)
	if _, err := file.ReadAt(b, r.off); err != nil {
		return nil, false
	}
	of, members, err := decode(b)
	return members, err == nil && of == name
}

// Has reports whether the members of a shard of this size and version are stored.
func (k *Kept) Has(name string, size int64, version uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, known := k.records[name]
	return known && r.size == uint64(size) && r.version == version
}

// Add stores the members of a shard.
func (k *Kept) Add(name string, size int64, version uint64, members []Member) error {
	b := encode(name, size, version, members)
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.file.WriteAt(b, k.end); err != nil {
		return fmt.Errorf("keep the index of shard %s: %w", clip(name), err)
	}
	k.note(name, record{k.end, int64(len(b)), uint64(size), version})
	k.used[name] = true
	k.end += int64(len(b))
	return nil
}

// Forget drops the shards that were neither requested nor added, and replaced records, if these are more than half of
// the file.
func (k *Kept) Forget() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	live := int64(0)
	for name, r := range k.records {
		if !k.used[name] {
			k.dead += r.length
			delete(k.records, name)
			continue
		}
		live += r.length
	}
	if k.dead <= live {
		return nil
	}
	moved := make(map[string]record, len(k.records))
	end := int64(0)
	err := durable.Replace(k.path, func(v *durable.Version) error {
		for name, r := range k.records {
			if _, err := io.Copy(v, io.NewSectionReader(k.file, r.off, r.length)); err != nil {
				return err
			}
			r.off = end
			moved[name] = r
			end += r.length
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the index of shards again: %w", err)
	}
	f, err := trust.Open(k.path, os.O_RDWR)
	if err != nil {
		return err
	}
	err = k.file.Close()
	k.file, k.records, k.end, k.dead = f, moved, end, 0
	return err
}

// Close closes the file. It must come after all other calls.
func (k *Kept) Close() error { return k.file.Close() }

func encode(name string, size int64, version uint64, members []Member) []byte {
	le := binary.LittleEndian
	n := recordHead + len(name) + recordSum
	for _, m := range members {
		n += recordRow + len(m.Name) + len(m.Text)
	}
	b := le.AppendUint64(make([]byte, 0, n), recordMagic)
	for _, v := range []uint64{uint64(n), uint64(size), version} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, uint32(len(members)))
	b = le.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	for _, m := range members {
		b = le.AppendUint64(b, uint64(m.Off))
		b = le.AppendUint64(b, uint64(m.Size))
		b = append(b, byte(m.Kind), byte(len(m.Text)), 0, 0)
		b = le.AppendUint32(b, uint32(len(m.Name)))
		b = append(append(b, m.Name...), m.Text...)
	}
	return le.AppendUint64(b, xxh3.Hash(b))
}

var errRecord = errors.New("not a record of a shard")

// decode decodes a whole record. The names of the members share its memory.
func decode(b []byte) (name string, members []Member, err error) {
	le := binary.LittleEndian
	if len(b) < recordHead+recordSum || le.Uint64(b) != recordMagic || le.Uint64(b[8:]) != uint64(len(b)) {
		return "", nil, errRecord
	}
	body := b[:len(b)-recordSum]
	if le.Uint64(b[len(body):]) != xxh3.Hash(body) {
		return "", nil, errRecord
	}
	size, count, rest := int64(le.Uint64(b[16:])), uint64(le.Uint32(b[32:])), string(body[recordHead:])
	at := body[recordHead:]
	take := func(n uint64) (s string, ok bool) {
		if n > uint64(len(rest)) {
			return "", false
		}
		s, rest, at = rest[:n], rest[n:], at[n:]
		return s, true
	}
	name, ok := take(uint64(le.Uint32(b[36:])))
	if !ok || count*recordRow > uint64(len(rest)) {
		return "", nil, errRecord
	}
	members = make([]Member, count)
	for i := range members {
		m, row := &members[i], at
		if _, ok := take(recordRow); !ok {
			return "", nil, errRecord
		}
		m.Off, m.Size, m.Kind = int64(le.Uint64(row)), int64(le.Uint64(row[8:])), Kind(row[16])
		var ok1, ok2 bool
		m.Name, ok1 = take(uint64(le.Uint32(row[20:])))
		m.Text, ok2 = take(uint64(row[17]))
		if !ok1 || !ok2 || m.Kind > Sparse || m.Off < 0 || m.Size < 0 || m.Kind == File && (m.Off > size || m.Size > size-m.Off) && Packing(name) == "" {
			return "", nil, errRecord
		}
	}
	if rest != "" {
		return "", nil, errRecord
	}
	return name, members, nil
}
