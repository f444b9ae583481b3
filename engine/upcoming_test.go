package engine

import (
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"

	"lcache/chunker"
	"lcache/sample"
)

// TestDecideUpcoming reads testdata/upcoming.txt. Each paragraph is a rank's upcoming chunk, and the part of it that the prefetcher must read.
//
//	decide
//	ahead=N [inwindow drawn hit others static unknown norank]
//	----
//	the prefetcher's part
//
// The rank is one of the owner's, and the ring has memory for misses. With hit it has none, because the log keeps everything.
func TestDecideUpcoming(t *testing.T) {
	datadriven.RunTest(t, "testdata/upcoming.txt", func(t *testing.T, d *datadriven.TestData) string {
		v := upcomingView{isKnown: true, hasRank: true, owns: true, misses: true}
		for _, field := range storyFields(t, d) {
			switch field.name {
			case "ahead":
				v.ahead = field.int()
			case "inwindow":
				v.inWindow = true
			case "drawn":
				v.drawn = true
			case "hit":
				v.misses = false
			case "others":
				v.owns = false
			case "static":
				v.inPlace = true
			case "unknown":
				v.isKnown = false
			case "norank":
				v.hasRank = false
			default:
				field.unknown()
			}
		}
		return map[leftOver]string{leftNothing: "nothing, from here on", leftAll: "all of it", leftMisses: "samples that the log does not keep", leftApart: "samples that the scan does not load in time",
			leftOther: "all of it, in addition to the scan"}[v.decide()] + "\n"
	})
}

// TestApart: the window does not load samples of a chunk that the layout does not deliver, or later uses of samples more than one segment before the chunk's last.
func TestApart(t *testing.T) {
	none := uint32(chunker.None)
	layout := &chunker.EpochLayout{Segment: []uint32{0, 1, 2, 3, 4, none}, Starts: []uint64{0, 1, 2, 3, 4, 5}, Used: 4} // segment 4 is rest
	for _, tt := range []struct {
		story   string
		repeats bool
		content []sample.Index
		held    sample.Index
		want    []sample.Index
	}{
		{"an epoch that uses each sample once", false, []sample.Index{0, 1, 2, 3}, sample.None, nil},
		{"the line does not deliver two of them", false, []sample.Index{3, 4, 5}, sample.None, []sample.Index{4, 5}},
		{"one of these is held in memory", false, []sample.Index{3, 4, 5}, 4, []sample.Index{5}},
		{"the chunk lies across a boundary", true, []sample.Index{2, 3}, sample.None, nil},
		{"two of them were used before", true, []sample.Index{0, 1, 2, 3}, sample.None, []sample.Index{0, 1}},
		{"one of these is held in memory", true, []sample.Index{0, 1, 3}, 0, []sample.Index{1}},
	} {
		layout.Repeats = tt.repeats
		apart := apartFrom(layout, tt.content, func(index sample.Index) bool { return index == tt.held })
		var got []sample.Index
		for index := range apart {
			got = append(got, index)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v of %v, want %v", tt.story, got, tt.content, tt.want)
		}
	}
}
