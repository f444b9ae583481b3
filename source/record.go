package source

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"lcache/sample"
)

// The record of a listing, for the next listing. Little-endian:
//
//	 0  magic    "lcachels"
//	 8  version  u32 = 2
//	12  folders  u32
//	16  of       16 bytes: the identity of the listing, chosen by the caller
//	32  rows     for each folder: device u64, inode u64, mtime i64, ctime i64, samples u32, outside u32, links u32, reach u32, length u32, path
//	    sum      xxh3-64 of everything before it
//
// It is valid on one machine. Losing it costs one full listing, so any error leads to a full listing.
const (
	recordMagic   = "lcachels"
	recordVersion = 2
	recordHead    = 32
	recordRow     = 52
	recordSum     = 8
)

var errRecord = errors.New("not a record of this listing")

// EncodeFolders encodes a record. of identifies the recorded listing.
func EncodeFolders(folders []Folder, of [16]byte) []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, recordHead+len(folders)*(recordRow+32)), recordMagic...)
	b = le.AppendUint32(b, recordVersion)
	b = le.AppendUint32(b, uint32(len(folders)))
	b = append(b, of[:]...)
	for _, f := range folders {
		b = le.AppendUint64(b, f.Device)
		b = le.AppendUint64(b, f.Inode)
		b = le.AppendUint64(b, uint64(f.Modified))
		b = le.AppendUint64(b, uint64(f.Changed))
		for _, n := range []int{f.Samples, f.Outside, f.Links, int(f.Reach)} {
			b = le.AppendUint32(b, uint32(n))
		}
		b = le.AppendUint32(b, uint32(len(f.Path)))
		b = append(b, f.Path...)
	}
	return le.AppendUint64(b, xxh3.Hash(b))
}

// DecodeFolders decodes the record of a listing with this number of samples. After an error the caller lists all
// folders.
func DecodeFolders(b []byte, of [16]byte, samples int) ([]Folder, error) {
	le := binary.LittleEndian
	if len(b) < recordHead+recordSum || string(b[:8]) != recordMagic || le.Uint32(b[8:]) != recordVersion || [16]byte(b[16:32]) != of {
		return nil, errRecord
	}
	body := b[:len(b)-recordSum]
	if le.Uint64(b[len(body):]) != xxh3.Hash(body) {
		return nil, fmt.Errorf("record of a listing: %w", sample.ErrCorrupt)
	}
	count, rows := le.Uint32(b[12:]), body[recordHead:]
	if uint64(count)*recordRow > uint64(len(rows)) {
		return nil, fmt.Errorf("record of a listing: %w", sample.ErrCorrupt)
	}
	folders := make([]Folder, count)
	for i := range folders {
		if len(rows) < recordRow || uint64(len(rows)-recordRow) < uint64(le.Uint32(rows[48:])) || le.Uint32(rows[44:]) > uint32(Outside) {
			return nil, fmt.Errorf("record of a listing: %w", sample.ErrCorrupt)
		}
		f := &folders[i]
		f.Device, f.Inode, f.Modified, f.Changed = le.Uint64(rows), le.Uint64(rows[8:]), int64(le.Uint64(rows[16:])), int64(le.Uint64(rows[24:]))
		f.Samples, f.Outside, f.Links, f.Reach = int(le.Uint32(rows[32:])), int(le.Uint32(rows[36:])), int(le.Uint32(rows[40:])), Reach(le.Uint32(rows[44:]))
		end := recordRow + int(le.Uint32(rows[48:]))
		f.Path, rows = string(rows[recordRow:end]), rows[end:]
		samples -= f.Samples
	}
	if len(rows) > 0 || samples != 0 {
		return nil, fmt.Errorf("record of a listing: %w", sample.ErrCorrupt)
	}
	return folders, nil
}
