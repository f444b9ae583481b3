package server

import (
	"encoding/binary"
	"fmt"

	"lcache/sample"
)

// appendParts appends PARTS with as many samples as fit a frame, at least one.
func appendParts(b []byte, request uint32, samples [][]sample.Part) ([]byte, error) {
	at := len(b)
	b, fit := appendPartColumns(begin(b, typePartsAre, request), samples, maxFrame-8)
	if fit == 0 && len(samples) > 0 {
		return b[:at], fmt.Errorf("a sample of %d parts does not fit a frame", len(samples[0]))
	}
	return finish(b, at), nil
}

// appendPartColumns appends the body of PARTS with as many samples as fit into room bytes, and returns their number. Each extension is written once, in
// the order of its first use.
func appendPartColumns(b []byte, samples [][]sample.Part, room int) (_ []byte, fit int) {
	place := map[string]uint32{}
	var exts []string
	var counts, parts []uint32
	size := 8 // the two counts
	for _, list := range samples {
		more, fresh := 4+8*len(list), len(exts)
		for _, p := range list {
			if _, known := place[p.Ext]; !known {
				place[p.Ext] = uint32(len(exts))
				exts = append(exts, p.Ext)
				more += 4 + len(p.Ext)
			}
		}
		if size+more > room {
			exts = exts[:fresh] // drops the extensions of the sample that did not fit
			break
		}
		size += more
		counts = append(counts, uint32(len(list)))
		for _, p := range list {
			parts = append(parts, place[p.Ext], p.Size)
		}
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(counts)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(exts)))
	b = appendColumn(b, counts)
	b = appendColumn(b, parts)
	for _, ext := range exts {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(ext)))
	}
	for _, ext := range exts {
		b = append(b, ext...)
	}
	return b, len(counts)
}

// appendBatchParts appends the parts of a batch's samples to its frame, if they fit. The frame begins at the given offset, and is the last one in b. A
// client requests missing parts by PARTS.
func appendBatchParts(b []byte, at int, samples [][]sample.Part) []byte {
	longer, fit := appendPartColumns(b, samples, maxFrame-(len(b)-at-4))
	if fit < len(samples) {
		return b
	}
	return finish(longer, at)
}
