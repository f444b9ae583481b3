package verdict

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/dustin/go-humanize"
)

// TestStories reads testdata/verdicts.txt. A paragraph is one judgement:
//
//	# what happened
//	given                      these facts and no others; then: these facts change, the others stay
//	epochs seconds=100 since=1
//	----
//	CAUSE (the word of the status document)
//	bound   WHY
//	change  WHAT TO DO
//
// groups has the names of the facts. Bytes may have a unit. A new case is a new paragraph; go test ./verdict -rewrite fills in the decision.
func TestStories(t *testing.T) {
	var f Facts
	met := map[Cause]bool{}
	datadriven.RunTest(t, "testdata/verdicts.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "given":
			f = Facts{}
		case "then":
			if f.Loader != nil { // a copy, because the facts before have been judged
				l := *f.Loader
				f.Loader = &l
			}
		default:
			d.Fatalf(t, "%s: a paragraph begins with given or then", d.Cmd)
		}
		for line := range strings.Lines(d.Input) {
			if err := set(&f, line); err != nil {
				d.Fatalf(t, "%s: %v", strings.TrimSpace(line), err)
			}
		}
		v := Judge(f)
		met[v.Cause] = true
		return fmt.Sprintf("%s (%s)\nbound   %s\nchange  %s\n", v.Cause, v.BoundBy(), v.Bound, v.Change)
	})
	for _, cause := range []Cause{Unknown, Loop, Decode, Source, Budget, Disk, Order, Python, CPU, Peer} {
		if !met[cause] {
			t.Errorf("no story ends with %s", cause)
		}
	}
}

// groups has the words that may begin a line of facts, and for each word the names of its facts, with their fields.
var groups = map[string]map[string]string{
	"epochs": {"seconds": "Seconds", "since": "Since", "filling": "Filling", "single": "Single"},
	"asked":  {"delivered": "Delivered", "samples": "Samples", "misses": "Misses", "peer": "Peer", "stale": "Stale"},
	"server": {"stall": "Stall", "idle": "Idle", "ready": "Ready", "cpu": "ServerCPU"},
	"loop":   {"ran": "LoopSeconds", "waited": "LoopWait"},
	"loader": {"ran": "Loader.LoopSeconds", "waited": "Loader.LoopWait", "decode": "Loader.Decode", "workers": "Loader.Workers", "loops": "Loader.Loops"},
	"reader": {"cpu": "ReaderCPU"},
	"cache":  {"kept": "Kept", "dataset": "Dataset", "needed": "Needed", "at": "Cache"},
	"disk":   {"gave": "DiskRate", "limit": "DiskLimit"},
	"order":  {"divergences": "Divergences", "recipe": "Recipe", "first": "First"},
	"cpus":   {"n": "CPUs"},
}

// set puts the facts of one line into f.
func set(f *Facts, line string) error {
	about, args, err := datadriven.ParseLine(line)
	if err != nil {
		return err
	}
	for _, arg := range args {
		field, ok := groups[about][arg.Key]
		if !ok {
			return fmt.Errorf("no fact %s of %s", arg.Key, about)
		}
		if err := setField(f, field, arg.Vals); err != nil {
			return fmt.Errorf("%s: %w", arg.Key, err)
		}
	}
	return nil
}

func setField(f *Facts, field string, values []string) error {
	to := reflect.ValueOf(f).Elem()
	if name, ok := strings.CutPrefix(field, "Loader."); ok {
		if f.Loader == nil {
			f.Loader = &Loader{}
		}
		to, field = reflect.ValueOf(f.Loader).Elem(), name
	}
	to = to.FieldByName(field)
	switch value := strings.Join(values, " "); to.Kind() {
	case reflect.String:
		to.SetString(value)
	case reflect.Bool:
		to.SetBool(value != "no")
	case reflect.Pointer: // of a position
		f.First = nil
		if len(values) == 4 {
			var n [4]int
			for i := range n {
				var err error
				if n[i], err = strconv.Atoi(values[i]); err != nil {
					return err
				}
			}
			f.First = &Position{n[0], n[1], n[2], n[3]}
		}
	default:
		if strings.HasSuffix(value, "B") {
			n, err := humanize.ParseBytes(value)
			if err != nil {
				return err
			}
			value = strconv.FormatUint(n, 10)
		}
		if to.Kind() == reflect.Float64 {
			n, err := strconv.ParseFloat(value, 64)
			to.SetFloat(n)
			return err
		}
		n, err := strconv.ParseInt(value, 10, 64)
		to.SetInt(n)
		return err
	}
	return nil
}
