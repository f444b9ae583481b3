package plan

import "math"

// Beginning describes a job that begins over a full log in another order, with the rates of the device: the whole epoch is still to come, and the log
// holds what fits. A server fills a Beginning with measured rates instead.
func (m *Model) Beginning() Beginning {
	e := m.Epoch(Log)
	held := e.Hit * m.f.DatasetBytes * m.f.StoredRatio
	d := m.f.Device
	b := Beginning{
		Left: uint64(min(e.Hit*m.node*m.f.StoredRatio, math.MaxInt64)), Held: uint64(min(held, math.MaxInt64)), Waited: WaitedEnough, Last: m.f.Epochs == 1,
		Place: rateOf(d.tauStatic(m.stored, m.stored/e.BlockBytes)), Sort: rateOf(d.tauLog()), Read: rateOf(d.Seconds(Transfer{Bytes: 1}, Transfer{})),
		MissBytes: uint64(min(e.SourceBytes, math.MaxInt64)), Device: d, BlockBytes: e.BlockBytes,
	}
	b.Source = rateOf(per(m.others(e.Hit, 0).Source, e.SourceBytes))
	return b
}

// rateOf returns the rate in bytes/s for a cost in seconds per byte; no limit if the cost is 0.
func rateOf(tau float64) float64 {
	if tau <= 0 {
		return math.Inf(1)
	}
	return 1 / tau
}

// EpochsToReorder returns how many epochs a job must have left so that reordering samples that are in place pays. It is +Inf if the log's epochs are not
// shorter. One epoch is never enough: it would write an order that is never read.
func (m *Model) EpochsToReorder() float64 {
	log, static := m.Epoch(Log), m.Epoch(Static)
	if static.EpochS <= log.EpochS {
		return math.Inf(1)
	}
	b := m.Beginning()
	b.Last = false
	change := max(min(b.placeSeconds(), b.sortSeconds()), log.Seconds.others())
	k := (change + m.lastEpoch(Log, log) - 2*log.EpochS) / (static.EpochS - log.EpochS)
	return max(2, math.Floor(k)+1)
}
