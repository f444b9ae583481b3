package launch

import (
	"slices"
	"syscall"
	"time"

	"lcache/internal/peer"
)

// Times of a server that stays for other machines.
const (
	recent     = 10 * time.Second       // a peer that requested samples within this time may need more
	lingerPoll = 100 * time.Millisecond // between looks at the peers
)

// isNeeded reports whether another machine has requested samples recently, and is still connected.
func (l *link) isNeeded() bool {
	return slices.ContainsFunc(l.of.server.Consumers(l.share.Dataset), func(c peer.Consumer) bool { return c.IsOpen && time.Since(c.Asked) < recent })
}

// rest notes that an embedded server has no client any longer, and ends at the given time unless one comes.
func (l *link) rest(ends time.Time) {
	l.client.CloseIdle()
	if l.isNeeded() {
		l.log.Info("no client is left: the server stays for other machines, which still read from it", "at_most", time.Until(ends).Round(time.Second))
	}
}

// linger returns when no other machine needs the servers of this run any longer, or after Linger. A signal ends it at once. It does nothing after SIGTERM,
// because whoever sends that kills the process soon.
func (r *run) linger(command string, signals *signals) {
	until := time.Now().Add(r.Linger)
	for isFirst := true; !signals.isOut && time.Now().Before(until); isFirst = false {
		isNeeded := false
		for _, s := range r.serving {
			if s.local == nil || s.local.link == nil {
				continue
			}
			s.local.link.client.CloseIdle() // else two machines that have both finished would wait for each other
			isNeeded = isNeeded || s.local.link.isNeeded()
		}
		if !isNeeded {
			return
		}
		if isFirst && r.Stays != nil {
			r.Stays(command)
		}
		select {
		case sig := <-signals.all:
			if sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 { // which are for the command
				return
			}
		case <-time.After(lingerPoll):
		}
	}
}
