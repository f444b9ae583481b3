package engine

import (
	"testing"

	"lcache/chunker"
	"lcache/reorder"
)

// TestUnusedSegmentsKeepStep: an unused segment is scanned when a larger share of the delivered segments is scanned. Carried segments count separately: before others
// they do not delay the disk's work, and after them nothing is done too early.
func TestUnusedSegmentsKeepStep(t *testing.T) {
	const a, l, m, d = segAbsent, segLoading, segMoving, segDone
	for _, tt := range []struct {
		delivered, rest []segState
		carried         []int // of all
		want            int   // of all
	}{
		{[]segState{a, a, a, a}, []segState{a, a, a, a}, nil, -1},
		{[]segState{l, a, a, a}, []segState{a, a, a, a}, nil, 4},
		{[]segState{d, a, a, a}, []segState{m, a, a, a}, nil, -1},
		{[]segState{d, l, a, a}, []segState{d, a, a, a}, nil, 5},
		{[]segState{d, d, a, a}, []segState{a, d, a, a}, nil, 4}, // one was carried
		{[]segState{d, a, a, a}, []segState{a}, nil, 4},
		{[]segState{d, a, a, a}, []segState{d}, nil, -1},
		{[]segState{d, a}, []segState{d, d, a, a}, nil, -1},
		{[]segState{d, l}, []segState{d, d, a, a}, nil, 4},
		{[]segState{d, l}, nil, nil, -1},
		{[]segState{l, a, a, a}, []segState{a, a, a, a}, []int{6, 7}, 4},
		{[]segState{l, a, a, a}, []segState{m, a, a, a}, []int{6, 7}, 6},
		{[]segState{d, l, a, a}, []segState{m, a, d, a}, []int{6, 7}, -1},
		{[]segState{d, d, l, a}, []segState{d, a, d, a}, []int{6, 7}, 5},
		{[]segState{d, d, l, a}, []segState{a, a, a, d}, []int{4, 5}, 6},
	} {
		layout := &chunker.EpochLayout{Used: len(tt.delivered)}
		for k := range len(tt.delivered) + len(tt.rest) + 1 {
			layout.Starts = append(layout.Starts, uint64(k))
		}
		s := machine{cur: &reorder.EpochLog{Layout: layout}, segs: append(tt.delivered[:len(tt.delivered):len(tt.delivered)], tt.rest...)}
		if tt.carried != nil {
			s.tgt = &reorder.EpochLog{Layout: &chunker.EpochLayout{Before: layout}}
			for _, k := range tt.carried {
				s.tgt.Layout.Carried = append(s.tgt.Layout.Carried, chunker.Carried{From: k, To: k})
			}
		}
		if got := s.lateUnused(); got != tt.want {
			t.Errorf("segments %v, unused %v, carried %v: late segment %d, want %d", tt.delivered, tt.rest, tt.carried, got, tt.want)
		}
	}
}
