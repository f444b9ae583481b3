package launch

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"lcache/internal/peer"
)

// requestedFrom counts what came from a peer, and what did not.
type requestedFrom struct {
	bytes, late, absent atomic.Int64
	isLate              atomic.Bool // the peer did not answer, and neither brought a sample since nor came back
}

// answered notes how a request to the peer ended, and logs a change. It reports whether the peer is late from now on. A request that its caller gave up, or
// that the peer refused, shows neither that the peer is late nor that it answers again.
func (p *requestedFrom) answered(address string, requested, missing int, err error, log *slog.Logger) (isLate bool) {
	switch {
	case errors.Is(err, peer.ErrLate):
		if !p.isLate.Swap(true) {
			log.Warn("a machine of the cluster does not answer; its samples come from elsewhere until it does", "peer", address, "reason", err)
			return true
		}
	case err == nil && missing < requested:
		if p.isLate.Swap(false) {
			log.Info("a machine of the cluster answers again", "peer", address)
		}
	}
	return false
}

// cameBack notes that gossip has the peer again.
func (p *requestedFrom) cameBack(address string, log *slog.Logger) {
	if p.isLate.Swap(false) {
		log.Info("a machine of the cluster that did not answer is there again", "peer", address)
	}
}
