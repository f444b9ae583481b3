package server

import (
	"encoding/binary"
	"fmt"

	"lcache/sample"
)

// appendParts takes as many samples as fit a frame, at least one. Each extension is written once, in the order of its first use.
func appendParts(b []byte, request uint32, samples [][]sample.Part) ([]byte, error) {
	place := map[string]uint32{}
	var exts []string
	var counts, parts []uint32
	size := 8 + 8 // the header's part of the length, and the two counts
	for _, list := range samples {
		more, fresh := 4+8*len(list), len(exts)
		for _, p := range list {
			if _, known := place[p.Ext]; !known {
				place[p.Ext] = uint32(len(exts))
				exts = append(exts, p.Ext)
				more += 4 + len(p.Ext)
			}
		}
		if size+more > maxFrame {
			exts = exts[:fresh] // those of a sample that is left out
			break
		}
		size += more
		counts = append(counts, uint32(len(list)))
		for _, p := range list {
			parts = append(parts, place[p.Ext], p.Size)
		}
	}
	if len(counts) == 0 && len(samples) > 0 {
		return b, fmt.Errorf("a sample of %d parts does not fit a frame", len(samples[0]))
	}
	at := len(b)
	b = binary.LittleEndian.AppendUint32(begin(b, typePartsAre, request), uint32(len(counts)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(exts)))
	b = appendColumn(b, counts)
	b = appendColumn(b, parts)
	for _, ext := range exts {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(ext)))
	}
	for _, ext := range exts {
		b = append(b, ext...)
	}
	return finish(b, at), nil
}
