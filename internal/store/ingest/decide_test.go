package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestDecide reads testdata/decide.txt. Each paragraph has the facts of a cache or a log that ingest finds, then its decision
// and the reason. The facts are the fields of found and foundLog; a field that is not named is false.
func TestDecide(t *testing.T) {
	datadriven.RunTest(t, "testdata/decide.txt", func(t *testing.T, d *datadriven.TestData) string {
		said := map[string]bool{}
		for _, field := range strings.Fields(d.Input) {
			said[field] = true
		}
		field := func(name string) bool {
			is := said[name]
			delete(said, name)
			return is
		}
		var what decision
		var why string
		switch d.Cmd {
		case "cache":
			f := found{record: field("record"), otherBudget: field("other-budget"), otherPacking: field("other-packing"), packed: field("packed"), sums: field("sums")}
			switch {
			case field("manifest-same"):
				f.manifest = manifestSame
			case field("manifest-changed"):
				f.manifest = manifestChanged
			}
			what, why = decideCache(f)
		case "log":
			ofOld := field("of-old")
			f := foundLog{holds: field("holds"), two: field("two"), older: field("older"), first: field("first"), fits: field("fits"), resort: field("sorted"),
				recipe: field("recipe"), static: field("static"), nothing: field("nothing"), all: field("all"), ofOld: func() bool { return ofOld }}
			what, why = decideLog(f)
		default:
			d.Fatalf(t, "cache or log, not %s", d.Cmd)
		}
		if len(said) > 0 {
			d.Fatalf(t, "%v: no field of %s", said, d.Cmd)
		}
		return fmt.Sprintf("%s\nbecause %s\n", what, why)
	})
}
