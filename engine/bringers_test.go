package engine

import (
	"testing"

	"lcache/chunker"
	"lcache/deliver"
	"lcache/sample"
)

// TestExpectOfThePass: what a request may expect of the pass for samples in segments that are loaded, loading, next, and behind, and for one that
// the log does not keep.
func TestExpectOfThePass(t *testing.T) {
	const unkept = 4
	line := &chunker.Line{Segment: []uint32{0, 1, 2, 3, chunker.None}}
	segs := []segState{segDone, segLoading, segAbsent, segAbsent}
	admits := func(index sample.Index) bool { return index != unkept }
	const gone, load, queue = deliver.Gone, deliver.Loading, deliver.Queued
	for _, c := range []struct {
		story string
		view  passView
		want  [5]deliver.Availability // loaded, loading, next, later, unkept
	}{
		{"the epoch that is read, a rank in time", passView{line: line, segs: segs, inPlace: true, mayQueue: true, mayWait: true, first: 2}, [5]deliver.Availability{gone, load, queue, queue, gone}},
		{"a rank that was late, or gave up waiting", passView{line: line, segs: segs, inPlace: true, mayWait: true, first: 2}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"a rank that went back behind the window", passView{line: line, segs: segs, inPlace: true, mayQueue: true, mayWait: true, first: 3}, [5]deliver.Availability{gone, load, gone, queue, gone}},
		{"nothing more is to be loaded for delivery", passView{line: line, segs: segs, inPlace: true, mayQueue: true, mayWait: true, first: -1}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"the next epoch, at the boundary", passView{line: line, segs: segs, soon: true, mayWait: true, first: -1}, [5]deliver.Availability{queue, load, queue, queue, gone}},
		{"the next epoch, after it waited in vain", passView{line: line, segs: segs, soon: true, first: -1}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"an epoch far away", passView{line: line, segs: segs, mayWait: true, first: -1}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"a log in an unknown order, the epoch is about to be laid out", passView{soon: true, mayWait: true, first: -1}, [5]deliver.Availability{queue, queue, queue, queue, gone}},
		{"a log in an unknown order", passView{mayWait: true, first: -1}, [5]deliver.Availability{gone, gone, gone, gone, gone}},
	} {
		c.view.admits = admits
		for index, want := range c.want {
			if got := c.view.expect(sample.Index(index)); got != want {
				t.Errorf("%s: sample %d of %v: %d, want %d", c.story, index, []string{"loaded", "loading", "next", "later", "unkept"}[index], got, want)
			}
		}
	}
}
