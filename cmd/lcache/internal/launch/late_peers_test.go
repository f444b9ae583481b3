package launch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"lcache/internal/peer"
)

// TestLatePeers: a peer is late from a request without an answer until it brings a sample, or gossip has it again. Requests that end for another reason
// change nothing, and each change has one line in the log.
func TestLatePeers(t *testing.T) {
	var p requestedFrom
	var lines bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lines, nil))
	late := fmt.Errorf("%w: it was silent", peer.ErrLate)
	for i, step := range []struct {
		missing int // of 10
		err     error
		isBack  bool
		isLate  bool
		line    string // in the log; "": none
	}{
		{missing: 0},
		{missing: 10, err: late, isLate: true, line: "does not answer"},
		{missing: 10, err: late, isLate: true},
		{missing: 10, err: context.DeadlineExceeded, isLate: true}, // a request by index waits for less than --peer-timeout
		{missing: 10, err: context.Canceled, isLate: true},
		{missing: 10, err: peer.ErrRefused, isLate: true},
		{missing: 10, isLate: true}, // the deadline reached the peer first
		{missing: 9, line: "answers again"},
		{missing: 10, err: context.DeadlineExceeded},
		{missing: 5, err: late, isLate: true, line: "does not answer"},
		{isBack: true, line: "is there again"},
		{isBack: true},
	} {
		lines.Reset()
		if step.isBack {
			p.cameBack("gpu-02:7746", log)
		} else {
			p.answered("gpu-02:7746", 10, step.missing, step.err, log)
		}
		if got := lines.String(); p.isLate.Load() != step.isLate || (got != "") != (step.line != "") || !strings.Contains(got, step.line) {
			t.Errorf("step %d: late %v, logged %q; want %v and %q", i, p.isLate.Load(), got, step.isLate, step.line)
		}
	}
}
