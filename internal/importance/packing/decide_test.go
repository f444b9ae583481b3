package packing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"lcache/internal/importance/substitute"
	"lcache/logfile"
)

// TestDecide reads testdata/decide.txt. Each paragraph is a state, with the result.
//
//	step: the worker's next action, and why. Packages have 4 blocks, 5 are open.
//	  [handed] spare=places next=piece victims=N state=state [full] [spent]
//	victim: the piece that is emptied next. Pieces are listed as bytes/living bytes; one with "!" can not be chosen.
//	  places=N free=N reserve=N A=10/3,10/9 B=… packages=…
//	sample: where a sample of the ring goes.
//	  [stored] [high] [packed] [unkept] [short] [spent]
//	emptied: where a sample of a victim goes.
//	  [left] [spent]
//	ages: the state of a victim after a scan that found N samples, or after a run whose last sample had a fate, with N samples left.
//	  scanned=N, or moved=fate left=N
func TestDecide(t *testing.T) {
	datadriven.RunTest(t, "testdata/decide.txt", func(t *testing.T, d *datadriven.TestData) string {
		s := story{t: t, d: d, has: map[string]string{}, asked: map[string]bool{}}
		for _, field := range strings.Fields(d.Input) {
			name, value, _ := strings.Cut(field, "=")
			s.has[name] = value
		}
		defer s.refuseUnknown()
		switch d.Cmd {
		case "step":
			a := decide(s.view())
			return fmt.Sprintf("%s\nbecause %s\n", a, a.why)
		case "victim":
			pieces := pieces{s.list("A"), s.list("B"), s.list("packages")}
			if next, ok := nextVictim(&pieces, substitute.Space{Places: s.number("places"), Free: s.number("free"), Reserve: s.number("reserve")}); ok {
				return next.String() + "\n"
			}
			return "none\n"
		case "sample":
			return decideSample(sampleView{kept: !s.is("unkept"), stored: s.is("stored"), high: s.is("high"), packed: s.is("packed"), short: s.is("short"), mayWrite: !s.is("spent")}).String() + "\n"
		case "emptied":
			return decideSample(sampleView{emptied: true, hasLeft: s.is("left"), mayWrite: !s.is("spent")}).String() + "\n"
		case "ages":
			if s.is("scanned") {
				return scanned(s.number("scanned")).String() + "\n"
			}
			return moved(s.fate(), s.number("left")).String() + "\n"
		}
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return ""
	})
}

// story is a paragraph of the file: its fields by name.
type story struct {
	t   *testing.T
	d   *datadriven.TestData
	has map[string]string

	asked map[string]bool // fields that the command has
}

// refuseUnknown fails the test for a field that the command does not have.
func (s *story) refuseUnknown() {
	for name := range s.has {
		if !s.asked[name] {
			s.d.Fatalf(s.t, "unknown field %s", name)
		}
	}
}

func (s *story) is(name string) bool {
	s.asked[name] = true
	_, ok := s.has[name]
	return ok
}

func (s *story) number(name string) (n int) {
	s.asked[name] = true
	if value, ok := s.has[name]; ok {
		s.scan(value, &n)
	}
	return n
}

func (s *story) scan(value string, to ...any) {
	if _, err := fmt.Sscanf(value, strings.TrimPrefix(strings.Repeat("/%d", len(to)), "/"), to...); err != nil {
		s.d.Fatalf(s.t, "%s: %v", value, err)
	}
}

func (s *story) view() view {
	v := view{geometry: geometry{open: 5, blocks: 4}, spare: s.number("spare"), handed: s.is("handed"), victims: s.number("victims"), fits: !s.is("full"), mayWrite: !s.is("spent")}
	if s.is("state") {
		v.state = map[string]victimState{"chosen": victimChosen, "listed": victimListed}[s.has["state"]]
	}
	next, is := s.number("next"), s.is("next")
	v.next = func() (piece, bool) { return piece{logfile.PackagesNum, next}, is }
	return v
}

// list returns the pieces of a Logfile: total and live bytes of each.
func (s *story) list(name string) (list []substitute.Piece) {
	s.asked[name] = true
	for _, one := range strings.Split(s.has[name], ",") {
		if one == "" {
			continue
		}
		p := substitute.Piece{Ordered: name != "packages"}
		one, p.Stays = strings.CutSuffix(one, "!")
		s.scan(one, &p.Bytes, &p.Live)
		list = append(list, p)
	}
	return list
}

func (s *story) fate() fate {
	s.asked["moved"] = true
	for _, f := range []fate{stay, pack, later, never} {
		if f.String() == s.has["moved"] {
			return f
		}
	}
	s.d.Fatalf(s.t, "unknown fate %q", s.has["moved"])
	return 0
}
