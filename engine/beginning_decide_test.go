package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"lcache/internal/plan"
	"lcache/reorder"
)

// TestDecideBeginning reads testdata/beginning.txt. Each paragraph has the measurements since an epoch began over a log in another order, and the decision.
//
//	decide
//	read=E/L of=E/L chose=CHOICE batches=N left=MB held=MB waited=S delivered=SHARE place=MB/S source=MB/S miss=MB inorder=MB/S [flags]
//	----
//	the action, and why
//
// With choice instead of decide, the answer is the earlier choice, if it was made for this epoch and this log.
//
// read is the epoch and the log that are read. of names the epoch and the log of the measurements; by default the same. Rates are in MB a second. Omitted values are 0: nothing is measured.
func TestDecideBeginning(t *testing.T) {
	datadriven.RunTest(t, "testdata/beginning.txt", func(t *testing.T, d *datadriven.TestData) string {
		const mb = 1 << 20
		began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		v := beginningView{now: began.Add(time.Minute), other: true, epoch: 1, log: 1, last: beginning{began: true, epoch: 1, log: 1}}
		f := plan.Beginning{BlockBytes: mb}
		for _, field := range storyFields(t, d) {
			switch field.name {
			case "read":
				field.read(&v.epoch, &v.log)
			case "of":
				field.read(&v.last.epoch, &v.last.log)
			case "chose":
				v.last.choice = map[string]plan.Choice{"sort": plan.Sort, "place": plan.InPlace}[field.value]
			case "batches":
				v.chunks = int64(field.int())
			case "left":
				f.Left = uint64(field.float() * mb)
			case "held":
				f.Held = uint64(field.float() * mb)
			case "miss":
				f.MissBytes = uint64(field.float() * mb)
			case "waited":
				f.Waited = time.Duration(field.float() * float64(time.Second))
			case "delivered":
				f.Delivered = field.float()
			case "place":
				f.Place = field.float() * mb
			case "source":
				f.Source = field.float() * mb
			case "inorder":
				rate := field.float() * mb
				v.last.sequentialRate, f.Sort, f.Read, f.Device = rate, rate, rate, plan.DiskLine{ReadBPS: rate, WriteBPS: rate}
			case "sorted":
				v.other = false
			case "first":
				v.last = beginning{}
			case "finished":
				v.finished = true
			case "again":
				v.last.again = began.Add(time.Duration(field.int()) * time.Second)
			case "measuring":
				v.last.measuring = true
			case "sortatonce":
				v.sortAtOnce = true
			default:
				field.unknown()
			}
		}
		if d.Cmd == "choice" {
			return fmt.Sprintf("%s\n", v.last.choiceFor(v.epoch, &reorder.EpochLog{ID: v.log}))
		}
		v.facts = func() plan.Beginning { return f }
		a := decideBeginning(v)
		text := map[beginningAct]string{beginNothing: "nothing", beginAgain: "begin again: " + fmt.Sprint(a.choice), beginMeasure: "measure reads in order",
			beginChoose: "choose: " + fmt.Sprint(a.choice), beginLater: fmt.Sprintf("ask again in %v", a.after)}[a.act]
		return fmt.Sprintf("%s\nbecause %s\n", text, a.why)
	})
}
