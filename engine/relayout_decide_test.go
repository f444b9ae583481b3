package engine

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestSays reads testdata/relayout.txt. Each paragraph is a finished epoch, and whether it is evidence about the layout that it was read in.
//
//	epoch
//	hits=N misses=N seconds=S before=N kept=SHARE cur=E [flags]
//	----
//	the layout, and why it counts or not
//
// It is epoch 3, delivers 1000 samples, and took 60 s. Omitted fields have their usual values: the log layout, all samples are kept, and there is a next epoch.
func TestSays(t *testing.T) {
	datadriven.RunTest(t, "testdata/relayout.txt", func(t *testing.T, d *datadriven.TestData) string {
		v := epochView{samples: 1000, kept: 1, next: true, short: shortestEpoch, cur: logView{true, 3}}
		v.done.Epoch, v.done.Seconds, v.done.Hits = 3, 60, 1000
		for _, field := range storyFields(t, d) {
			switch field.name {
			case "hits":
				v.done.Hits = int64(field.int())
			case "misses":
				v.done.Misses = int64(field.int())
			case "seconds":
				v.done.Seconds = field.float()
			case "before":
				v.hits = int64(field.int())
			case "kept":
				v.kept = field.float()
			case "cur":
				v.cur.epoch = field.int()
			case "inplace":
				v.inPlace = true
			case "lent":
				v.lent, v.cur = true, logView{}
			case "tookup":
				v.switched = true
			case "tgt":
				v.tgt = true
			case "unidentified":
				v.unidentified = true
			case "other":
				v.other = true
			case "last":
				v.next = false
			case "others":
				v.others = true
			default:
				field.unknown()
			}
		}
		switch says := v.says(); {
		case says.layout == "":
			return fmt.Sprintf("a mixture\nbecause %s\n", says.why)
		case says.typical:
			return fmt.Sprintf("%s, and it counts\n", says.layout)
		default:
			return fmt.Sprintf("%s, and it does not count\nbecause %s\n", says.layout, says.why)
		}
	})
}
