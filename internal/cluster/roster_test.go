package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestRosters plays testdata/rosters.txt. A story begins with "cluster", which takes expect=N, grace=SECONDS, and self=HOST:PORT/START of the member that
// looks. Then "see" gives what gossip has at a time in seconds: one line a member, with its cache, weight, host:port, the second in which it started, and
// "leaving" if so, or its host's name if that is not HOST:PORT. The answer is the roster as cache:weight, the state, the peers that are not ok, and the time of the next look.
func TestRosters(t *testing.T) {
	var tr *tracker
	var begin time.Time
	datadriven.RunTest(t, "testdata/rosters.txt", func(t *testing.T, d *datadriven.TestData) string {
		seconds := func(at time.Time) string { return strconv.FormatFloat(at.Sub(begin).Seconds(), 'g', 4, 64) + " s" }
		if d.Cmd == "cluster" {
			grace, expect, self := 60, 0, ""
			d.MaybeScanArgs(t, "self", &self)
			d.MaybeScanArgs(t, "expect", &expect)
			d.MaybeScanArgs(t, "grace", &grace)
			begin = time.Unix(1_000_000, 0)
			tr = &tracker{self: self, expect: expect, grace: time.Duration(grace) * time.Second, doubt: doubtTime, began: begin, peers: map[CacheID]*standing{}}
			return ""
		}
		var at float64
		if _, err := fmt.Sscan(d.CmdArgs[0].Key, &at); err != nil {
			t.Fatal(err)
		}
		var seen []sighting
		for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			f := strings.Fields(line)
			if len(f) == 0 {
				continue
			}
			s := sighting{seenMember: seenMember{f[2] + "/" + f[3], f[2], &announcement{host: f[2]}}}
			copy(s.Cache[:], f[0])
			weight, _ := strconv.Atoi(f[1])
			started, _ := strconv.Atoi(f[3])
			s.Weight, s.started = uint16(weight), begin.Add(time.Duration(started)*time.Second)
			switch {
			case len(f) <= 4:
			case f[4] == "leaving":
				s.Flags = FlagLeaving
			default:
				s.host = f[4]
			}
			seen = append(seen, s)
		}
		roster, wake := tr.update(begin.Add(time.Duration(at*float64(time.Second))), seen)
		var b strings.Builder
		name := func(id CacheID) string { return strings.TrimRight(string(id[:]), "\x00") }
		b.WriteString("roster:")
		if roster == nil {
			b.WriteString(" none")
		} else {
			for _, p := range roster.Peers {
				fmt.Fprintf(&b, " %s:%d", name(p.ID), p.Weight)
			}
		}
		v := tr.view(tr.expect, tr.self)
		fmt.Fprintf(&b, "\nstate: %s\n", v.State)
		for _, p := range v.Peers {
			if p.State != PeerOK {
				fmt.Fprintf(&b, "%s at %s: %s since %s\n", name(p.Cache), p.Address, p.State, seconds(p.Since))
			}
		}
		if !wake.IsZero() {
			fmt.Fprintf(&b, "again at: %s\n", seconds(wake))
		}
		return b.String()
	})
}
