package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"
)

// A witness is a logger's handler that keeps what an engine logs, and passes warnings and errors on. Tests wait for its messages as for events.
type witness struct {
	next slog.Handler

	mu       *sync.Mutex // guards the fields that follow, which copies of the witness share
	seen     map[string][]map[string]slog.Value
	changed  *chan struct{} // closed when another message comes
	prefixed []slog.Attr
}

func newWitness(next *slog.Logger) *witness {
	changed := make(chan struct{})
	w := &witness{next: slog.DiscardHandler, mu: new(sync.Mutex), seen: map[string][]map[string]slog.Value{}, changed: &changed}
	if next != nil {
		w.next = next.Handler()
	}
	return w
}

func (w *witness) Enabled(context.Context, slog.Level) bool { return true }

func (w *witness) Handle(ctx context.Context, r slog.Record) error {
	fields := map[string]slog.Value{}
	for _, a := range w.prefixed {
		fields[a.Key] = a.Value
	}
	r.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value; return true })
	w.mu.Lock()
	w.seen[r.Message] = append(w.seen[r.Message], fields)
	close(*w.changed)
	*w.changed = make(chan struct{})
	w.mu.Unlock()
	if w.next.Enabled(ctx, r.Level) {
		return w.next.Handle(ctx, r)
	}
	return nil
}

func (w *witness) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *w
	more.next, more.prefixed = w.next.WithAttrs(attrs), append(slices.Clone(w.prefixed), attrs...)
	return &more
}

func (w *witness) WithGroup(string) slog.Handler { return w }

// messages returns the fields of all messages with a text, and a channel that is closed when another message comes.
func (w *witness) messages(text string) ([]map[string]slog.Value, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[text], *w.changed
}

// logged returns the messages of an engine that was opened by open.
func (e *Engine) logged(text string) ([]map[string]slog.Value, <-chan struct{}) {
	return e.opts.Logger.Handler().(*witness).messages(text)
}

// nowLogfiles returns the state of the Logfiles that the mover logged last. ok is false before the first one.
func (e *Engine) nowLogfiles() (l logfiles, ok bool, changed <-chan struct{}) {
	all, changed := e.logged("Logfiles")
	if len(all) == 0 {
		return l, false, changed
	}
	last := all[len(all)-1]
	number := func(key string) int { return int(last[key].Int64()) }
	return logfiles{read: number("read"), target: number("target"), hasTarget: last["has_target"].Bool(), sorting: last["sorting"].Bool(),
		recovered: last["recovered"].Bool(), loaded: number("loaded"), scanned: last["scanned"].Bool(), served: number("served"), inWindow: number("in_window"),
		waits: last["waits"].Bool()}, true, changed
}

// comesTo waits, for a minute, until the Logfiles are in some state, and gives the mover turns meanwhile. It reports whether they are.
func (e *Engine) comesTo(is func(l logfiles) bool) bool {
	end := time.After(time.Minute)
	turns := time.NewTicker(time.Millisecond) // for conditions that also ask for something that is not logged
	defer turns.Stop()
	for {
		l, ok, changed := e.nowLogfiles()
		if ok && is(l) {
			return true
		}
		select {
		case <-changed:
		case <-turns.C:
			e.nudge()
		case <-end:
			return false
		}
	}
}

// logsBecome fails the test if the Logfiles do not come to some state.
func logsBecome(t testing.TB, e *Engine, what string, is func(l logfiles) bool) {
	t.Helper()
	if !e.comesTo(is) {
		l, _, _ := e.nowLogfiles()
		t.Fatalf("it never came that %s: %+v; %+v", what, l, e.Status().Jobs[0])
	}
}

// isAt returns the state in which a log in the order of an epoch is read.
func isAt(epoch int) func(logfiles) bool { return func(l logfiles) bool { return l.read == epoch } }

// goesTo returns the state in which a log in the order of an epoch is read or written.
func goesTo(epoch int) func(logfiles) bool {
	return func(l logfiles) bool { return l.read == epoch || l.target == epoch }
}

// laidOut returns how often an epoch was laid out, and for which ranks the last time.
func (e *Engine) laidOut(epoch int) (times int, ranks string) {
	all, _ := e.logged("an epoch is laid out")
	for _, fields := range all {
		if int(fields["epoch"].Int64()) == epoch {
			times, ranks = times+1, fmt.Sprint(fields["ranks"].Any())
		}
	}
	return times, ranks
}
