package plan

import (
	"fmt"
	"lcache/internal/errcode"
	"math"
)

// worthReordering: static is kept if its epoch is at most this many times the log's, because static writes nothing.
const worthReordering = 1.05

// MostLeftOut is the largest share of samples that an epoch may leave out with a log. Beyond it, moving all samples costs more than it saves.
const MostLeftOut = 0.05

// Advice is the layout that a cache should have, and the reason.
type Advice struct {
	Layout        Policy  `json:"layout"` // Log or Static
	Reason        string  `json:"reason"` // one sentence
	Remark        string  `json:"-"`      // why the layout is not the one with the shorter epoch; "": it is
	Log           Epoch   `json:"-"`      // at its best admission
	Static        Epoch   `json:"-"`      // at its best admission
	LogEpochS     float64 `json:"log_epoch_s"`
	StaticEpochS  float64 `json:"static_epoch_s"` // both while the cache holds all samples that fit
	SmallestCache float64 `json:"smallest_cache_bytes"`
	WritesPerDay  float64 `json:"written_per_day"`
}

// Chosen returns the epoch of the chosen layout at its best admission.
func (a Advice) Chosen() Epoch {
	if a.Layout == Log {
		return a.Log
	}
	return a.Static
}

// MemoryError reports that no layout fits into the memory.
type MemoryError struct {
	Needs float64 // bytes, for the layout that needs less
	Limit float64
}

// Code returns the code of the error.
func (*MemoryError) Code() errcode.Code { return errcode.Memory }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("no layout fits into %.0f MB of memory: the smaller one needs %.0f MB", e.Limit/1e6, math.Ceil(e.Needs/1e6))
}

// Auto chooses between log and static: by the job's constraints, then by the time of an epoch, then by memory, then by write volume. With several nodes
// that are peers, both layouts are spread over them. The error is a *MemoryError if neither fits.
func (m *Model) Auto() (Advice, error) {
	log, static := m.layouts()
	a := Advice{LogEpochS: m.Epoch(log).EpochS, StaticEpochS: m.Epoch(static).EpochS}
	if m.f.AsHeld {
		a.Log, a.Static = m.Epoch(log), m.Epoch(static)
	} else {
		_, a.Log = m.BestAdmission(log)
		_, a.Static = m.BestAdmission(static)
	}
	a.Layout, a.Reason = m.byJob(a)
	if a.Layout == "" {
		a.Layout, a.Reason = m.byTime(a)
	}
	if err := m.byMemory(&a, log); err != nil {
		return a, err
	}
	m.byWear(&a, log)
	if a.Layout == Log && m.f.Epochs > 1 {
		a.WritesPerDay = a.Log.WritesPerDay()
	}
	a.SmallestCache = m.SmallestCache(a.Chosen().Policy)
	return a, nil
}

// layouts returns the two candidates.
func (m *Model) layouts() (log, static Policy) {
	if m.f.Nodes > 1 && !m.f.WithoutPeers {
		return PeerLog, PeerStatic
	}
	return Log, Static
}

// byJob returns the layout that the job's constraints determine, if they do.
func (m *Model) byJob(a Advice) (Policy, string) {
	switch {
	case m.f.Nodes > 1 && m.f.WithoutPeers:
		return Static, "only some of the job's ranks read here, and without peers a log would read and write all samples to deliver some"
	case m.f.LeftOut > MostLeftOut:
		return Static, fmt.Sprintf("an epoch leaves out %.0f %% of the samples, and a log would read and write them too", 100*m.f.LeftOut)
	case m.f.Epochs == 1:
		return Log, "there is only one epoch: it is read in order, and nothing is written for a next one"
	}
	return "", ""
}

func (m *Model) byTime(a Advice) (Policy, string) {
	log, static := a.Log.EpochS, a.Static.EpochS
	if static <= worthReordering*log {
		saves := "nothing"
		if log < static {
			saves = fmt.Sprintf("%.0f %%", 100*(1-log/static))
		}
		return Static, fmt.Sprintf("read in place an epoch takes %s (bound by the %s), reordered %s: reordering would save %s and write %s a day",
			seconds(static), a.Static.BoundBy, seconds(log), saves, gigabytes(a.Log.WritesPerDay()))
	}
	return Log, fmt.Sprintf("reordered an epoch takes %s (bound by the %s), read in place %s (bound by the %s): reordering writes %s a day",
		seconds(log), a.Log.BoundBy, seconds(static), a.Static.BoundBy, gigabytes(a.Log.WritesPerDay()))
}

// byMemory switches to the other layout if the chosen one does not fit.
func (m *Model) byMemory(a *Advice, log Policy) error {
	z, _, logFits := m.arena(log, a.Log.Hit < 1)
	need := map[Policy]float64{Log: z.MemoryBytes, Static: a.Static.MemoryBytes}
	fits := map[Policy]bool{Log: logFits, Static: a.Static.Fits}
	other := map[Policy]Policy{Log: Static, Static: Log}[a.Layout]
	switch {
	case fits[a.Layout]:
		return nil
	case !fits[other]:
		return &MemoryError{Needs: min(need[Log], need[Static]), Limit: m.f.MemoryBytes}
	}
	a.Reason = fmt.Sprintf("%s, but %s needs %s of memory and the limit is %s", a.Reason, a.Layout, gigabytes(need[a.Layout]), gigabytes(m.f.MemoryBytes))
	a.Layout = other
	return nil
}

// byWear reduces the admitted share if a log would write more than the drives are rated for. If static is then as fast, it
// switches to static.
func (m *Model) byWear(a *Advice, log Policy) {
	limit := m.f.WearPerDay
	if a.Layout != Log || limit == 0 || m.f.Epochs == 1 || a.Log.WritesPerDay() <= limit {
		return
	}
	too := gigabytes(a.Log.WritesPerDay())
	lo, hi := 0.0, a.Log.Hit
	for range halvings {
		mid := (lo + hi) / 2
		if e := m.epochAt(log, mid); e.WritesPerDay() > limit {
			hi = mid
		} else {
			lo = mid
		}
	}
	less := m.epochAt(log, lo)
	if a.Static.Fits && (m.f.AsHeld || a.Static.EpochS <= worthReordering*less.EpochS) {
		a.Layout = Static
		a.Remark = fmt.Sprintf("that is more than the drives are rated for, %s a day", gigabytes(limit))
		a.Reason = fmt.Sprintf("%s, but the drives are rated for %s a day; in place an epoch takes %s and writes nothing", a.Reason, gigabytes(limit), seconds(a.Static.EpochS))
		return
	}
	a.Log = less
	a.Reason = fmt.Sprintf("reordered an epoch takes %s with %.0f %% of the samples held: holding all that fits would write %s a day, and the drives are rated for %s",
		seconds(less.EpochS), 100*less.Hit, too, gigabytes(limit))
}

func seconds(s float64) string { return fmt.Sprintf("%.3g s", s) }

func gigabytes(b float64) string {
	if b >= 1e12 {
		return fmt.Sprintf("%.3g TB", b/1e12)
	}
	return fmt.Sprintf("%.3g GB", b/1e9)
}
